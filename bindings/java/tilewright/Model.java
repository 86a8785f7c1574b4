package tilewright;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * A model that tilewright exported: a shared library, opened by path. Any number of threads may use it.
 *
 * <pre>{@code
 * try (var model = Model.load(Path.of("model.so")); var session = model.session()) {
 *   float[] y = session.run(Tensor.of(new float[4 * 32], 4, 32)).get(0).floats();
 * }
 * }</pre>
 *
 * Needs Java 22 or newer (java.lang.foreign), and {@code --enable-native-access=ALL-UNNAMED}.
 */
public final class Model implements AutoCloseable {
  private final Library library;
  private final List<Spec> inputs;
  private final List<Spec> outputs;
  private final String manifest;
  private boolean isClosed;

  private Model(Library library) {
    this.library = library;
    inputs = specs(library.inputCount, library.input);
    outputs = specs(library.outputCount, library.output);
    manifest = Library.text((MemorySegment) Library.call(library.manifest, library.model()));
  }

  /** Opens a library. An artifact is machine code, which this runs: open only what you trust. */
  public static Model load(Path path) {
    return new Model(new Library(path, null));
  }

  /**
   * The same through libtilewright, which opens packages too, and looks at digests before it runs anything. {@code loader}:
   * its path.
   */
  public static Model load(Path path, Path loader) {
    return new Model(new Library(loader, path));
  }

  private List<Spec> specs(MethodHandle count, MethodHandle describe) {
    List<Spec> specs = new ArrayList<>();
    try (Arena scratch = Arena.ofConfined()) {
      MemorySegment place = scratch.allocate(Spec.SIZE, 8);
      for (int i = 0; i < (int) Library.call(count, library.model()); i++) {
        library.require(describe, library.model(), i, place);
        specs.add(Spec.read(place));
      }
    }
    return List.copyOf(specs);
  }

  public List<Spec> inputs() {
    return inputs;
  }

  public List<Spec> outputs() {
    return outputs;
  }

  /** JSON: digest and names of the model, version, target, what each kernel is. */
  public String manifest() {
    return manifest;
  }

  /** A session with as many threads as the model was built for. */
  public Session session() {
    return session(0);
  }

  public synchronized Session session(int threads) {
    if (isClosed) {
      throw new TilewrightException(Library.INVALID_ARGUMENT, "the model is closed");
    }
    return new Session(library, outputs.size(), threads);
  }

  /** Gives the model back as soon as its sessions are closed too. */
  @Override
  public synchronized void close() {
    if (!isClosed) {
      isClosed = true;
      library.release();
    }
  }
}
