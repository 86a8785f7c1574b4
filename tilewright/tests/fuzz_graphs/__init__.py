"""Random ONNX graphs, compiled in several ways and compared with the reference interpreter and with onnxruntime.

``python -m tilewright.tests.fuzz_graphs --count 1000 --seed 0`` is the long run; ``--only SEED`` repeats one seed,
reduces it, and prints a script that shows the fault.

- ``draft``: a graph under construction. Every value carries its arrays for all size assignments of the run, so that
  a generator sees what it builds on, and symbolic dims are those that differ between assignments.
- ``families``: generators, one file per family of operators, in one table.
- ``node``: one node alone: the reference against onnxruntime, and ``differences``, the rules of who is right.
- ``tolerance``: how far a result may be off, by interpretation of the graph with perturbed values.
- ``check``: one seed from generation to verdict. ``reduce`` and ``script``: the smallest graph that shows a fault.
- ``workers``: seeds in processes with limits of time and memory.
"""
