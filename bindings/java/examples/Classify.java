import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import tilewright.Model;
import tilewright.Tensor;

/**
 * Classifies an image with an exported network of ImageNet's kind (resnet50 and others).
 *
 * <pre>
 * javac -d classes tilewright/*.java examples/Classify.java
 * java --enable-native-access=ALL-UNNAMED -cp classes Classify model.so picture.ppm
 * </pre>
 *
 * A picture is P6, of any size; other files are float32 values of the network's input, already normalized.
 */
final class Classify {
  private static final float[] MEAN = {0.485f, 0.456f, 0.406f};
  private static final float[] DEVIATION = {0.229f, 0.224f, 0.225f};
  private static final Pattern HEAD = Pattern.compile("P6\\s+(\\d+)\\s+(\\d+)\\s+255\\s");

  /** The nearest pixels of a picture, as planes of normalized red, green and blue. */
  private static float[] readPicture(byte[] file, int height, int width) {
    Matcher head = HEAD.matcher(new String(file, 0, Math.min(100, file.length), StandardCharsets.ISO_8859_1));
    if (!head.lookingAt()) {
      throw new IllegalArgumentException("expected a PPM of 8 bits");
    }
    int w = Integer.parseInt(head.group(1));
    int h = Integer.parseInt(head.group(2));
    if (file.length - head.end() < w * h * 3) {
      throw new IllegalArgumentException("the picture is cut off");
    }
    float[] x = new float[3 * height * width];
    int at = 0;
    for (int c = 0; c < 3; c++) {
      for (int i = 0; i < height; i++) {
        for (int j = 0; j < width; j++) {
          int near = i * h / height * w + j * w / width;
          float value = Byte.toUnsignedInt(file[head.end() + near * 3 + c]);
          x[at++] = (value / 255 - MEAN[c]) / DEVIATION[c];
        }
      }
    }
    return x;
  }

  private static float[] readValues(byte[] file) {
    float[] x = new float[file.length / 4];
    ByteBuffer.wrap(file).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(x);
    return x;
  }

  private static void classify(Path path, Path image) throws IOException {
    try (var model = Model.load(path); var session = model.session()) {
      List<Long> shape = model.inputs().get(0).shape();
      if (shape.size() != 4 || shape.get(2) < 0 || shape.get(3) < 0) {
        throw new IllegalArgumentException("expected a network for images");
      }
      int height = shape.get(2).intValue();
      int width = shape.get(3).intValue();
      byte[] file = Files.readAllBytes(image);
      boolean isPicture = file.length > 2 && file[0] == 'P' && file[1] == '6';
      float[] x = isPicture ? readPicture(file, height, width) : readValues(file);

      float[] scores = session.run(Tensor.of(x, 1, 3, height, width)).get(0).floats();
      IntStream.range(0, scores.length)
          .boxed()
          .sorted(Comparator.comparing(i -> -scores[i]))
          .limit(5)
          .forEach(i -> System.out.println(String.format(Locale.ROOT, "%4d %9.4f", i, scores[i])));
    }
  }

  public static void main(String[] words) {
    try {
      if (words.length != 2) {
        throw new IllegalArgumentException("usage: Classify MODEL IMAGE");
      }
      classify(Path.of(words[0]), Path.of(words[1]));
    } catch (IOException | RuntimeException e) {
      System.err.println("classify: " + e.getMessage());
      System.exit(1);
    }
  }
}
