import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import tilewright.DType;
import tilewright.Model;
import tilewright.Session;
import tilewright.Spec;
import tilewright.Tensor;
import tilewright.TilewrightException;

/** What every binding is tried with; see test_bindings.py. */
class Check {
  static void show(String what, List<Spec> specs) {
    for (Spec s : specs) {
      System.out.println(what + " " + s.name() + " " + s.type() + " [" + String.join(", ", s.dims()) + "]");
    }
  }

  static float[] values(String path) throws IOException {
    byte[] file = Files.readAllBytes(Path.of(path));
    float[] x = new float[file.length / 4];
    ByteBuffer.wrap(file).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(x);
    return x;
  }

  static void keep(String path, Tensor t) throws IOException {
    Files.write(Path.of(path), t.data().toArray(ValueLayout.JAVA_BYTE));
  }

  static TilewrightException refused(Runnable action) {
    try {
      action.run();
    } catch (TilewrightException e) {
      return e;
    }
    throw new IllegalStateException("expected an error");
  }

  public static void main(String[] words) throws Exception {
    Session a;
    Session b;
    try (Model first = Model.load(Path.of(words[0])); Model second = Model.load(Path.of(words[1]))) {
      for (Model m : List.of(first, second)) {
        show("input", m.inputs());
        show("output", m.outputs());
      }
      a = first.session(2);
      b = second.session(1);
    } // sessions keep what they need
    Tensor x = Tensor.of(values(words[2]), 5, 32);
    Tensor picture = Tensor.of(values(words[3]), 1, 3, 32, 32);
    System.out.println("shapes " + Arrays.toString(a.shapes(List.of(DType.FLOAT32), new long[] {7, 32}).get(0)));
    Thread[] beside = new Thread[4];
    for (int i = 0; i < beside.length; i++) {
      beside[i] = new Thread(() -> {
        for (int k = 0; k < 10; k++) {
          b.run(picture);
        }
      });
      beside[i].start();
    }
    keep("y.bin", a.run(x).get(0));
    for (Thread t : beside) {
      t.join();
    }
    keep("scores.bin", b.run(picture).get(0));
    Tensor y = Tensor.zeros(DType.FLOAT32, 5, 10);
    a.runInto(List.of(y), x);
    keep("given.bin", y);
    try (Model third = Model.load(Path.of(words[5]), Path.of(words[4])); Session packed = third.session(1)) {
      keep("packed.bin", packed.run(x).get(0));
    }
    Tensor narrow = Tensor.of(new float[155], 5, 31);
    TilewrightException e = refused(() -> a.run(narrow));
    System.out.println("error " + e.status() + " " + e.getMessage());
    e = refused(() -> a.runInto(List.of(Tensor.zeros(DType.FLOAT32, 5, 9)), x));
    System.out.println("error " + e.status() + " " + e.getMessage());
    System.out.println("error " + refused(() -> Model.load(Path.of("lost.so"))).status());
    e = refused(() -> Model.load(Path.of("damaged.so"), Path.of(words[4])));
    System.out.println("error " + e.status() + " " + e.getMessage());
    refused(() -> Tensor.of(new float[3], 2));
    refused(() -> y.longs());
    a.close();
    refused(() -> a.run(x));
    b.close();
  }
}
