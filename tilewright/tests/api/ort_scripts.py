"""Scripts as people write them for onnxruntime: each leaves what it found in ``result``.

They run in a folder with ``model.onnx`` (x: float[batch, 32] to y: float[batch, 10]), ``half.onnx`` (the same in
float16), ``large.onnx`` (weights in a file beside it), ``words.onnx`` (strings to strings), ``pairs.onnx`` (a sequence
of two tensors) and ``image.onnx`` (a convolution of x: float[n, 3, h, w]).
"""

from __future__ import annotations

from collections.abc import Mapping

SCRIPTS: Mapping[str, str] = {
    "run": """
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("model.onnx")
result = session.run(None, {"x": np.ones((2, 32), np.float32)})
""",
    "names from the session": """
import numpy as np
import onnxruntime as rt

sess = rt.InferenceSession("model.onnx", providers=rt.get_available_providers())
input_name = sess.get_inputs()[0].name
label_name = sess.get_outputs()[0].name
result = sess.run([label_name], {input_name: np.full((3, 32), 0.5).astype(np.float32)})[0]
""",
    "no names": """
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
result = session.run([], {"x": np.zeros((1, 32), dtype=np.float32)})
""",
    "random inputs from the signature": """
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("image.onnx")
rng = np.random.default_rng(0)
types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(float16)": np.float16}
feed = {}
for arg in session.get_inputs():
    shape = [d if isinstance(d, int) else 8 for d in arg.shape]
    feed[arg.name] = rng.random(shape).astype(types[arg.type])
result = [session.run(None, feed), [a.shape[1] for a in session.get_outputs()]]
""",
    "optimization level and file": """
import numpy as np
import onnxruntime as rt

sess_options = rt.SessionOptions()
sess_options.graph_optimization_level = rt.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
sess_options.optimized_model_filepath = "optimized.onnx"
session = rt.InferenceSession("model.onnx", sess_options)
again = rt.InferenceSession("optimized.onnx")
x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
result = [session.run(None, {"x": x}), again.run(None, {"x": x})]
""",
    "threads and execution mode": """
import numpy as np
import onnxruntime as rt

opts = rt.SessionOptions()
opts.intra_op_num_threads = 2
opts.inter_op_num_threads = 1
opts.execution_mode = rt.ExecutionMode.ORT_SEQUENTIAL
opts.graph_optimization_level = rt.GraphOptimizationLevel.ORT_ENABLE_ALL
opts.enable_mem_pattern = False
opts.enable_cpu_mem_arena = True
session = rt.InferenceSession("model.onnx", sess_options=opts)
result = session.run(["y"], {"x": np.ones((5, 32), np.float32)})
""",
    "configuration entries": """
import numpy as np
import onnxruntime as ort

so = ort.SessionOptions()
so.add_session_config_entry("session.intra_op.allow_spinning", "0")
so.add_session_config_entry("session.set_denormal_as_zero", "0")
session = ort.InferenceSession("model.onnx", so)
(y,) = session.run(None, {"x": np.ones((1, 32), np.float32)})
result = [so.get_session_config_entry("session.intra_op.allow_spinning"), y]
""",
    "the first provider that is there": """
import numpy as np
import onnxruntime as ort

wanted = ["CUDAExecutionProvider", "CPUExecutionProvider"]
providers = [p for p in wanted if p in ort.get_available_providers()]
session = ort.InferenceSession("model.onnx", providers=providers)
result = [session.get_providers(), ort.get_device(), session.run(None, {"x": np.ones((1, 32), np.float32)})]
""",
    "a binding to the CPU": """
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("model.onnx")
io_binding = session.io_binding()
io_binding.bind_cpu_input("x", np.ones((2, 32), np.float32))
io_binding.bind_output("y")
session.run_with_iobinding(io_binding)
result = io_binding.copy_outputs_to_cpu()[0]
""",
    "a binding to values": """
import numpy as np
import onnxruntime as ort

x = ort.OrtValue.ortvalue_from_numpy(np.ones((2, 32), np.float32))
y = ort.OrtValue.ortvalue_from_shape_and_type([2, 10], np.float32, "cpu", 0)
session = ort.InferenceSession("model.onnx")
binding = session.io_binding()
binding.bind_ortvalue_input("x", x)
binding.bind_ortvalue_output("y", y)
session.run_with_iobinding(binding)
result = [y.numpy(), x.device_name(), x.shape(), x.data_type(), binding.get_outputs()[0].numpy()]
""",
    "a binding to addresses": """
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("model.onnx")
x = np.arange(64, dtype=np.float32).reshape(2, 32) / 64
y = np.empty((2, 10), np.float32)
binding = session.io_binding()
binding.bind_input(
    name="x", device_type="cpu", device_id=0, element_type=np.float32, shape=x.shape, buffer_ptr=x.ctypes.data
)
binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
session.run_with_iobinding(binding)
result = y
""",
    "values": """
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("model.onnx")
value = ort.OrtValue.ortvalue_from_numpy(np.ones((1, 32), np.float32))
(y,) = session.run_with_ort_values(["y"], {"x": value})
result = [y.numpy(), y.is_tensor(), y.element_type()]
""",
    "DLPack": """
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("model.onnx")
value = ort.OrtValue.from_dlpack(np.ones((1, 32), np.float32))
(y,) = session.run_with_ort_values(None, {"x": value})
result = np.from_dlpack(y)
""",
    "profiling": """
import json
import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.enable_profiling = True
options.profile_file_prefix = "trace"
session = ort.InferenceSession("model.onnx", options)
session.run(None, {"x": np.ones((1, 32), np.float32)})
with open(session.end_profiling()) as f:
    events = json.load(f)
runs = [e for e in events if e["name"] == "model_run"]
result = [len(runs), all(e["dur"] > 0 for e in runs), {"Session", "Node"} <= {e["cat"] for e in events}]
""",
    "metadata": """
import onnxruntime as ort

meta = ort.InferenceSession("model.onnx").get_modelmeta()
result = [meta.producer_name, meta.graph_name, meta.domain, meta.description, meta.version, meta.custom_metadata_map]
""",
    "a fixed dimension": """
import numpy as np
import onnxruntime as ort

so = ort.SessionOptions()
so.add_free_dimension_override_by_name("batch", 4)
session = ort.InferenceSession("model.onnx", so)
result = [session.get_inputs()[0].shape, session.run(None, {"x": np.ones((4, 32), np.float32)})]
""",
    "run options": """
import numpy as np
import onnxruntime as ort

ort.set_default_logger_severity(3)
options = ort.RunOptions()
options.log_severity_level = 3
options.logid = "first"
session = ort.InferenceSession("model.onnx")
result = session.run(["y"], {"x": np.ones((1, 32), np.float32)}, options)
""",
    "bytes": """
import numpy as np
import onnx
import onnxruntime as ort

model = onnx.load("model.onnx")
onnx.checker.check_model(model)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
result = session.run(None, {session.get_inputs()[0].name: np.ones((2, 32)).astype(np.float32)})
""",
    "external data": """
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("large.onnx")
result = session.run(None, {"x": np.ones((2, 32), np.float32)})
""",
    "many threads": """
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("model.onnx")
inputs = [np.full((1 + i % 3, 32), i / 8, np.float32) for i in range(16)]
with ThreadPoolExecutor(8) as pool:
    result = list(pool.map(lambda x: session.run(None, {"x": x})[0], inputs))
""",
    "asynchronous": """
import threading
import numpy as np
import onnxruntime as ort

done, got = threading.Event(), []

def callback(results, user_data, error):
    got.append((results[0], user_data, error))
    done.set()

session = ort.InferenceSession("model.onnx")
session.run_async(None, {"x": np.ones((1, 32), np.float32)}, callback, "request 1")
assert done.wait(60)
result = list(got[0])
""",
    "strings": """
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("words.onnx")
(arg,) = session.get_inputs()
result = [arg.type, session.run(None, {arg.name: np.array(["B", "a"], dtype=object)})[0].tolist()]
""",
    "sequences": """
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("pairs.onnx")
(pair,) = session.run(None, {"x": np.ones((2, 3), np.float32)})
result = [session.get_outputs()[0].type, pair]
""",
    "half precision": """
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("half.onnx")
result = [session.get_inputs()[0].type, session.run(None, {"x": np.ones((1, 32), np.float16)})]
""",
    "warm-up and timing": """
import time
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("image.onnx")
x = np.ones((1, 3, 8, 8), np.float32)
for _ in range(3):
    session.run(None, {"x": x})
times = []
for _ in range(5):
    start = time.perf_counter()
    y = session.run(None, {"x": x})[0]
    times.append(time.perf_counter() - start)
result = [y, len(times), min(times) > 0]
""",
}
