package tilewright;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;

/** The functions of {@code tilewright.h} in one library, and how many hold it: the last one closes it. */
final class Library {
  static final int VERSION = 1;
  static final int INVALID_ARGUMENT = 1;
  static final int INVALID_ARTIFACT = 3;

  private final Arena arena = Arena.ofShared();
  private final MemorySegment model;
  private int users = 1;
  private final MethodHandle error, free, freeSession;
  final MethodHandle manifest, inputCount, outputCount, input, output, create, run, shapes;

  /** {@code inside}: the artifact that the library opens; null for the model in the library itself. */
  Library(Path path, Path inside) {
    try {
      SymbolLookup found = SymbolLookup.libraryLookup(path.toAbsolutePath(), arena);
      int version = (int) call(function(found, "tw_version", JAVA_INT));
      if (version != VERSION) {
        throw new IllegalArgumentException("version " + VERSION + " of the interface, got " + version);
      }
      error = function(found, "tw_error", ADDRESS);
      free = function(found, "tw_model_free", null, ADDRESS);
      freeSession = function(found, "tw_session_free", null, ADDRESS);
      manifest = function(found, "tw_model_manifest", ADDRESS, ADDRESS);
      inputCount = function(found, "tw_model_input_count", JAVA_INT, ADDRESS);
      outputCount = function(found, "tw_model_output_count", JAVA_INT, ADDRESS);
      input = function(found, "tw_model_input", JAVA_INT, ADDRESS, JAVA_INT, ADDRESS);
      output = function(found, "tw_model_output", JAVA_INT, ADDRESS, JAVA_INT, ADDRESS);
      create = function(found, "tw_session_create", JAVA_INT, ADDRESS, ADDRESS, ADDRESS);
      run = function(found, "tw_session_run", JAVA_INT, ADDRESS, ADDRESS, JAVA_INT, ADDRESS, JAVA_INT);
      shapes = function(found, "tw_session_shapes", JAVA_INT, ADDRESS, ADDRESS, JAVA_INT, ADDRESS, JAVA_INT);
      try (Arena scratch = Arena.ofConfined()) {
        MemorySegment place = scratch.allocate(ADDRESS);
        MemorySegment name = inside == null ? MemorySegment.NULL : scratch.allocateFrom(inside.toString());
        require(function(found, "tw_model_load", JAVA_INT, ADDRESS, ADDRESS), name, place);
        model = place.get(ADDRESS, 0);
      }
    } catch (IllegalArgumentException e) {
      arena.close();
      throw new TilewrightException(INVALID_ARTIFACT, path + ": expected an artifact: " + e.getMessage());
    } catch (TilewrightException e) {
      arena.close();
      throw e;
    }
  }

  private static MethodHandle function(
      SymbolLookup library, String name, MemoryLayout result, MemoryLayout... arguments) {
    MemorySegment address =
        library.find(name).orElseThrow(() -> new IllegalArgumentException("there is no " + name + " in it"));
    return Linker.nativeLinker()
        .downcallHandle(
            address,
            result == null ? FunctionDescriptor.ofVoid(arguments) : FunctionDescriptor.of(result, arguments));
  }

  /** What a function gives. C functions throw nothing. */
  static Object call(MethodHandle function, Object... arguments) {
    try {
      return function.invokeWithArguments(arguments);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  /** Calls a function that can fail; the message belongs to this thread. */
  void require(MethodHandle function, Object... arguments) {
    int status = (int) call(function, arguments);
    if (status != 0) {
      throw new TilewrightException(status, text((MemorySegment) call(error)));
    }
  }

  static String text(MemorySegment characters) {
    return characters.reinterpret(Long.MAX_VALUE).getString(0);
  }

  MemorySegment model() {
    return model;
  }

  void freeSession(MemorySegment session) {
    call(freeSession, session);
    release();
  }

  synchronized void hold() {
    users++;
  }

  synchronized void release() {
    if (--users == 0) {
      call(free, model);
      arena.close();
    }
  }

  /** A tensor of {@code tilewright.h} at an index of an array of them. */
  static void write(MemorySegment tensors, int index, DType type, MemorySegment data, MemorySegment shape, int rank) {
    MemorySegment t = tensors.asSlice(index * TENSOR, TENSOR);
    t.set(ADDRESS, 0, data);
    t.set(JAVA_INT, 8, 1);
    t.set(JAVA_INT, 16, rank);
    t.set(JAVA_INT, 20, type.packed());
    t.set(ADDRESS, 24, shape);
  }

  static final long TENSOR = 48;

  static int rank(MemorySegment tensors, int index) {
    return tensors.get(JAVA_INT, index * TENSOR + 16);
  }

  static DType type(MemorySegment tensors, int index) {
    return DType.unpacked(tensors.get(JAVA_INT, index * TENSOR + 20));
  }

  static MemorySegment data(MemorySegment tensors, int index) {
    return tensors.get(ADDRESS, index * TENSOR);
  }

  static long[] shape(MemorySegment tensors, int index) {
    long rank = rank(tensors, index);
    return tensors.get(ADDRESS, index * TENSOR + 24).reinterpret(8 * rank).toArray(JAVA_LONG);
  }
}
