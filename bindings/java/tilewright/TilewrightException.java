package tilewright;

/** What failed, and its status of {@code tilewright.h}. */
public final class TilewrightException extends RuntimeException {
  private static final long serialVersionUID = 1L;
  private final int status;

  TilewrightException(int status, String message) {
    super(message);
    this.status = status;
  }

  /** 1: an argument that makes no sense; 2: tensors that do not fit; 3: no artifact; others are in the header. */
  public int status() {
    return status;
  }
}
