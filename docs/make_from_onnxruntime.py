#!/usr/bin/env python3
"""Writes docs/from-onnxruntime.md: what of ONNX Runtime's session API maps to what here.

python docs/make_from_onnxruntime.py            write the page
python docs/make_from_onnxruntime.py --check    exit status 1 if the page is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from generated import GeneratedPage

from tilewright.api.session_options import CONFIG_ENTRIES, EFFECTS

SAME = "the same"
HOST = "devices other than the CPU are not there"
CLASSES: Mapping[str, Mapping[str, str]] = {
    "InferenceSession": {
        "InferenceSession(path_or_bytes, sess_options, providers, provider_options, disabled_optimizers)":
            "the same; `disabled_optimizers` takes our names of passes and rules; ours: `database=` for a tuning log",
        "run": "the same; ours: `out={name: array}` for outputs that are written in place",
        "run_with_ort_values": SAME, "run_async": SAME, "run_with_iobinding": SAME, "io_binding": SAME,
        "get_inputs": SAME, "get_outputs": SAME, "get_modelmeta": SAME, "get_session_options": SAME,
        "get_overridable_initializers": "an empty list: initializers are folded into the build",
        "get_providers": "`CPUExecutionProvider`", "get_provider_options": SAME,
        "set_providers": "without effect", "enable_fallback": "without effect", "disable_fallback": "without effect",
        "end_profiling": "a Chrome trace with an event for each run and each kernel",
        "get_profiling_start_time_ns": SAME,
        "create_ortvalue_from_shape_and_type": "`OrtValue.ortvalue_from_shape_and_type`",
        "run_with_ortvaluevector": "`run_with_ort_values`",
        "get_tuning_results": "`tilewright tune --log`", "set_tuning_results": "`database=`",
        "get_input_memory_infos": HOST, "get_output_memory_infos": HOST, "get_input_epdevices": HOST,
        "get_provider_graph_assignment_info": "`session.model.explain()`", "release_captured_graph": HOST,
        "set_ep_dynamic_options": HOST,
    },
    "SessionOptions": {
        **EFFECTS,
        "get_session_config_entry": SAME,
        "add_free_dimension_override_by_denotation": "refused: name the dimension",
        "register_custom_ops_library": "refused: no kernels of another runtime",
        "add_initializer": "not there: `tilewright.load_graph` edits a model before it is compiled",
        "add_external_initializers": "not there: external data is read from where the model says",
        "add_external_initializers_from_files_in_memory": "not there: external data is read from where the model says",
        "add_provider": HOST, "add_provider_for_devices": HOST, "has_providers": HOST,
        "set_provider_selection_policy": HOST, "set_provider_selection_policy_delegate": HOST,
        "set_ep_context_data_read_func": HOST, "clear_ep_context_data_read_func": HOST,
        "set_load_cancellation_flag": "not there: a build can be interrupted with Ctrl-C",
    },
    "RunOptions": {
        "terminate": "a run that has not begun is refused", "log_severity_level": "accepted", "logid": "accepted",
        "log_verbosity_level": "accepted", "only_execute_path_to_fetches": "accepted; all outputs are computed",
        "add_run_config_entry": "kept, without effect", "get_run_config_entry": SAME,
        "add_active_adapter": "not there: an adapter's weights are folded into the model",
    },
    "OrtValue": {
        "ortvalue_from_numpy": "the same, without a copy", "ortvalue_from_shape_and_type": SAME,
        "ortvalue_from_numpy_with_onnx_type": SAME, "from_dlpack": SAME, "numpy": "the array itself, not a copy",
        "shape": SAME, "data_type": SAME, "element_type": SAME, "device_name": "`cpu`", "data_ptr": SAME,
        "is_tensor": SAME, "is_tensor_sequence": SAME, "is_sparse_tensor": "False", "has_value": SAME,
        "tensor_size_in_bytes": SAME, "update_inplace": SAME,
        "as_sparse_tensor": "not there", "ort_value_from_sparse_tensor": "not there",
    },
    "IOBinding": {
        "bind_cpu_input": "the same; the array is read at each run", "bind_input": SAME, "bind_ortvalue_input": SAME,
        "bind_output": SAME, "bind_ortvalue_output": "the same; kernels write there, without a copy",
        "get_outputs": SAME, "get_outputs_as_ortvaluevector": SAME, "copy_outputs_to_cpu": "the same, without a copy",
        "clear_binding_inputs": SAME, "clear_binding_outputs": SAME, "synchronize_inputs": "nothing to wait for",
        "synchronize_outputs": "nothing to wait for",
    },
    "ModelMetadata": dict.fromkeys(
        ("producer_name", "graph_name", "graph_description", "domain", "description", "version",
         "custom_metadata_map"), SAME),
    "NodeArg": {"name": SAME, "shape": "the same; a symbolic size may be a formula (`2*batch`)", "type": SAME},
}  # fmt: skip
"""Names of ONNX Runtime's classes, and what they are here."""

HEAD = """\
# From ONNX Runtime

<!-- Written by docs/make_from_onnxruntime.py; a test compares it with the code. Do not edit. -->

A script for ONNX Runtime runs with one line changed: `import tilewright as ort`. What it calls keeps its name:

```python
import numpy as np
import tilewright as ort

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
options.intra_op_num_threads = 2
session = ort.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])
x = np.ones((4, 32), np.float32)
(y,) = session.run(None, {session.get_inputs()[0].name: x})

binding = session.io_binding()  # the same without new arrays
result = ort.OrtValue.ortvalue_from_shape_and_type([4, 10], np.float32)
binding.bind_cpu_input("x", x)
binding.bind_ortvalue_output("y", result)
session.run_with_iobinding(binding)
assert np.array_equal(result.numpy(), y)
```

`session.model` is the compiled model, with all that ONNX Runtime has no names for: `explain`, `profile`, `coverage`,
`export`. A session can be pickled and copied; the copy compiles its model again, mostly from the cache. Several threads
may run one session at once: a call that comes alone uses all threads, calls that come together share them; see
[serving.md](serving.md).

Options and configuration entries without a counterpart are accepted and change nothing. The logger `tilewright` says so
for configuration entries (`logging.basicConfig(level=logging.INFO)` shows it), and warns of unknown ones.
"""


def render() -> str:
    """The page."""
    parts = [HEAD]
    for title, rows in CLASSES.items():
        parts += [f"## {title}", "", "| ONNX Runtime | here |", "|---|---|"]
        parts += [f"| `{name}` | {text} |" for name, text in rows.items()]
        parts.append("")
    parts += ["## Configuration entries", "", "| entry | here |", "|---|---|"]
    parts += [f"| `{name}` | {text} |" for name, text in CONFIG_ENTRIES.items()]
    return "\n".join(parts) + "\n"


PAGE = GeneratedPage(__file__, "from-onnxruntime.md", render)

if __name__ == "__main__":
    sys.exit(PAGE.main())
