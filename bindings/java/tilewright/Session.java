package tilewright;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;

/** What one run needs: intermediate values and threads. Runs of one session take turns. */
public final class Session implements AutoCloseable {
  private final Library library;
  private final int outputs;
  private MemorySegment session;

  Session(Library library, int outputs, int threads) {
    this.library = library;
    this.outputs = outputs;
    try (Arena scratch = Arena.ofConfined()) {
      MemorySegment options = scratch.allocate(24, 8);
      MemorySegment place = scratch.allocate(ADDRESS);
      options.set(JAVA_INT, 0, threads);
      library.require(library.create, library.model(), options, place);
      session = place.get(ADDRESS, 0);
    }
    library.hold();
  }

  /** One run, in the order of the model's inputs and outputs. The results are copies. */
  public List<Tensor> run(Tensor... inputs) {
    List<Tensor> results = new ArrayList<>();
    try (Arena scratch = Arena.ofConfined()) {
      MemorySegment out = scratch.allocate(Library.TENSOR * outputs + 1, 8);
      synchronized (this) {
        call(library.run, lowered(scratch, inputs), inputs.length, out, outputs);
        for (int i = 0; i < outputs; i++) {
          Tensor result = Tensor.zeros(Library.type(out, i), Library.shape(out, i));
          long size = result.data().byteSize();
          result.data().copyFrom(Library.data(out, i).reinterpret(size));
          results.add(result);
        }
      }
    } finally {
      Reference.reachabilityFence(inputs); // or their memory might be given back while it is read
    }
    return results;
  }

  /** The same with results in memory of the caller's, which must have their shapes. */
  public void runInto(List<Tensor> results, Tensor... inputs) {
    try (Arena scratch = Arena.ofConfined()) {
      MemorySegment out = lowered(scratch, results.toArray(new Tensor[0]));
      call(library.run, lowered(scratch, inputs), inputs.length, out, results.size());
    } finally {
      Reference.reachabilityFence(inputs);
      Reference.reachabilityFence(results);
    }
  }

  /** Shapes of the outputs for inputs of these types and shapes, without a run; null where contents of inputs decide. */
  public List<long[]> shapes(List<DType> types, long[]... shapes) {
    List<long[]> results = new ArrayList<>();
    try (Arena scratch = Arena.ofConfined()) {
      MemorySegment in = scratch.allocate(Library.TENSOR * shapes.length + 1, 8);
      MemorySegment out = scratch.allocate(Library.TENSOR * outputs + 1, 8);
      for (int i = 0; i < shapes.length; i++) {
        Library.write(in, i, types.get(i), MemorySegment.NULL, sizes(scratch, shapes[i]), shapes[i].length);
      }
      synchronized (this) {
        call(library.shapes, in, shapes.length, out, outputs);
        for (int i = 0; i < outputs; i++) {
          results.add(Library.rank(out, i) < 0 ? null : Library.shape(out, i));
        }
      }
    }
    return results;
  }

  private synchronized void call(
      MethodHandle function, MemorySegment in, int given, MemorySegment out, int wanted) {
    if (session == null) {
      throw new TilewrightException(Library.INVALID_ARGUMENT, "the session is closed");
    }
    library.require(function, session, in, given, out, wanted);
  }

  private static MemorySegment lowered(Arena scratch, Tensor... tensors) {
    MemorySegment out = scratch.allocate(Library.TENSOR * tensors.length + 1, 8);
    for (int i = 0; i < tensors.length; i++) {
      Tensor t = tensors[i];
      Library.write(out, i, t.type(), t.data(), sizes(scratch, t.shape()), t.shape().length);
    }
    return out;
  }

  private static MemorySegment sizes(Arena scratch, long... shape) {
    return shape.length == 0 ? MemorySegment.NULL : scratch.allocateFrom(JAVA_LONG, shape);
  }

  /** Waits for a run, and gives the session back. */
  @Override
  public synchronized void close() {
    if (session != null) {
      library.freeSession(session);
      session = null;
    }
  }
}
