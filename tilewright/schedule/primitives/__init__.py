"""The schedule primitives, one file each; :data:`PRIMITIVES` lists them by name.

Takes: a tensor_ir function and a primitive's arguments.
Gives: an equivalent function, or a ScheduleError that says which precondition does not hold.
May import: schedule.base, schedule.copies, schedule.stage_motion, schedule.compact_buffer, tensor_ir, core.
Never: changes what a function computes; edits before everything is checked.
"""

from __future__ import annotations

from tilewright.schedule.base import Primitive
from tilewright.schedule.primitives.buffers.cache_read import CacheRead
from tilewright.schedule.primitives.buffers.cache_write import CacheWrite
from tilewright.schedule.primitives.buffers.set_scope import SetScope
from tilewright.schedule.primitives.buffers.storage_align import StorageAlign
from tilewright.schedule.primitives.buffers.transform_layout import TransformLayout
from tilewright.schedule.primitives.loops.annotate import Annotate
from tilewright.schedule.primitives.loops.blockize import Blockize
from tilewright.schedule.primitives.loops.fuse import Fuse
from tilewright.schedule.primitives.loops.parallel import Parallel
from tilewright.schedule.primitives.loops.peel import Peel
from tilewright.schedule.primitives.loops.reorder import Reorder
from tilewright.schedule.primitives.loops.split import Split
from tilewright.schedule.primitives.loops.tensorize import Tensorize
from tilewright.schedule.primitives.loops.unannotate import Unannotate
from tilewright.schedule.primitives.loops.unroll import Unroll
from tilewright.schedule.primitives.loops.vectorize import Vectorize
from tilewright.schedule.primitives.sampling.sample_categorical import SampleCategorical
from tilewright.schedule.primitives.sampling.sample_compute_location import SampleComputeLocation
from tilewright.schedule.primitives.sampling.sample_perfect_tile import SamplePerfectTile
from tilewright.schedule.primitives.stages.compute_at import ComputeAt
from tilewright.schedule.primitives.stages.compute_inline import ComputeInline
from tilewright.schedule.primitives.stages.decompose_reduction import DecomposeReduction
from tilewright.schedule.primitives.stages.pad_einsum import PadEinsum
from tilewright.schedule.primitives.stages.reverse_compute_at import ReverseComputeAt
from tilewright.schedule.primitives.stages.reverse_compute_inline import ReverseComputeInline
from tilewright.schedule.primitives.stages.rfactor import RFactor

PRIMITIVES: dict[str, type[Primitive]] = {
    # loops
    "split": Split,
    "fuse": Fuse,
    "reorder": Reorder,
    "peel": Peel,
    "unroll": Unroll,
    "vectorize": Vectorize,
    "parallel": Parallel,
    "annotate": Annotate,
    "unannotate": Unannotate,
    "blockize": Blockize,
    "tensorize": Tensorize,
    # buffers
    "set_scope": SetScope,
    "cache_read": CacheRead,
    "cache_write": CacheWrite,
    "transform_layout": TransformLayout,
    "storage_align": StorageAlign,
    # stages
    "compute_at": ComputeAt,
    "reverse_compute_at": ReverseComputeAt,
    "compute_inline": ComputeInline,
    "reverse_compute_inline": ReverseComputeInline,
    "decompose_reduction": DecomposeReduction,
    "rfactor": RFactor,
    "pad_einsum": PadEinsum,
    # sampling
    "sample_categorical": SampleCategorical,
    "sample_perfect_tile": SamplePerfectTile,
    "sample_compute_location": SampleComputeLocation,
}
