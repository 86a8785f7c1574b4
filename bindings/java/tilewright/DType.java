package tilewright;

/** The type of elements, as DLPack numbers it: code 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool. */
public record DType(int code, int bits) {
  public static final DType FLOAT32 = new DType(2, 32);
  public static final DType FLOAT64 = new DType(2, 64);
  public static final DType INT8 = new DType(0, 8);
  public static final DType INT32 = new DType(0, 32);
  public static final DType INT64 = new DType(0, 64);
  public static final DType UINT8 = new DType(1, 8);
  public static final DType BOOL = new DType(6, 8);
  public static final DType FLOAT16 = new DType(2, 16);
  public static final DType BFLOAT16 = new DType(4, 16);
  private static final String[] KINDS = {"int", "uint", "float", "handle", "bfloat", "complex"};

  int packed() {
    return code | bits << 8 | 1 << 16;
  }

  static DType unpacked(int packed) {
    return new DType(packed & 255, packed >> 8 & 255);
  }

  /** Bytes of one element. */
  public long size() {
    return (bits + 7) / 8;
  }

  @Override
  public String toString() {
    return code == 6 ? "bool" : (code < KINDS.length ? KINDS[code] : "code" + code + "_") + bits;
  }
}
