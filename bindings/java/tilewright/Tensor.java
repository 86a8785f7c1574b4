package tilewright;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;

/**
 * Dense elements in native memory; the last index is fastest. Native segments are used where they are, arrays are copied.
 */
public record Tensor(DType type, MemorySegment data, long... shape) {
  public Tensor {
    long size = Arrays.stream(shape).reduce(type.size(), Math::multiplyExact);
    if (data.byteSize() != size || !data.isNative()) {
      throw new TilewrightException(
          Library.INVALID_ARGUMENT,
          "expected a native segment of " + size + " bytes for shape " + Arrays.toString(shape) + ", got " + data);
    }
  }

  /** Zeros: memory for an output. Given back when nothing refers to it. */
  public static Tensor zeros(DType type, long... shape) {
    long size = Arrays.stream(shape).reduce(type.size(), Math::multiplyExact);
    return new Tensor(type, Arena.ofAuto().allocate(size, 64), shape);
  }

  public static Tensor of(float[] values, long... shape) {
    return copied(DType.FLOAT32, MemorySegment.ofArray(values), shape);
  }

  public static Tensor of(double[] values, long... shape) {
    return copied(DType.FLOAT64, MemorySegment.ofArray(values), shape);
  }

  public static Tensor of(long[] values, long... shape) {
    return copied(DType.INT64, MemorySegment.ofArray(values), shape);
  }

  public static Tensor of(int[] values, long... shape) {
    return copied(DType.INT32, MemorySegment.ofArray(values), shape);
  }

  /** Bytes as int8. For other types: {@code new Tensor(type, segment, shape)}. */
  public static Tensor of(byte[] values, long... shape) {
    return copied(DType.INT8, MemorySegment.ofArray(values), shape);
  }

  static Tensor copied(DType type, MemorySegment values, long... shape) {
    MemorySegment data = Arena.ofAuto().allocate(values.byteSize(), 64);
    data.copyFrom(values);
    return new Tensor(type, data, shape);
  }

  /** A copy of the elements. Throws TilewrightException if they are not float32; so do the others for theirs. */
  public float[] floats() {
    return require(DType.FLOAT32).toArray(ValueLayout.JAVA_FLOAT);
  }

  public double[] doubles() {
    return require(DType.FLOAT64).toArray(ValueLayout.JAVA_DOUBLE);
  }

  public long[] longs() {
    return require(DType.INT64).toArray(ValueLayout.JAVA_LONG);
  }

  public int[] ints() {
    return require(DType.INT32).toArray(ValueLayout.JAVA_INT);
  }

  private MemorySegment require(DType expected) {
    if (type.equals(expected)) {
      return data;
    }
    throw new TilewrightException(
        Library.INVALID_ARGUMENT, "expected elements of type " + expected + ", got " + type);
  }
}
