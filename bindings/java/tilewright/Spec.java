package tilewright;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;

/**
 * An input or output of a model. A size that is not fixed is -1 in {@code shape}; {@code dims} has its name or formula, and
 * the numbers of the others. Both are null where even the rank is known only after a run.
 */
public record Spec(String name, DType type, List<Long> shape, List<String> dims) {
  /** Bytes of a tw_spec. */
  static final long SIZE = 32;

  static Spec read(MemorySegment spec) {
    String name = Library.text(spec.get(ValueLayout.ADDRESS, 0));
    DType type = DType.unpacked(spec.get(ValueLayout.JAVA_INT, 8));
    int rank = spec.get(ValueLayout.JAVA_INT, 12);
    if (rank < 0) {
      return new Spec(name, type, null, null);
    }
    MemorySegment sizes = spec.get(ValueLayout.ADDRESS, 16).reinterpret(8L * rank);
    MemorySegment names = spec.get(ValueLayout.ADDRESS, 24).reinterpret(8L * rank);
    List<Long> shape = new ArrayList<>();
    List<String> dims = new ArrayList<>();
    for (int i = 0; i < rank; i++) {
      long size = sizes.getAtIndex(ValueLayout.JAVA_LONG, i);
      MemorySegment dim = names.getAtIndex(ValueLayout.ADDRESS, i);
      shape.add(size);
      dims.add(dim.address() == 0 ? Long.toString(size) : Library.text(dim));
    }
    return new Spec(name, type, List.copyOf(shape), List.copyOf(dims));
  }
}
