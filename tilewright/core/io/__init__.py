"""Files and large blocks of memory: what is written whole, what is read when it is needed, and locks between processes.

Takes: paths, open files, numbers of bytes.
Gives: files replaced whole (``files``), tensors in files (``stored``), memory in large pages (``pages``).
May import: core.errors, machine.
Never: knows what a file or an array means to whom asks.
"""
