// Classifies an image with an exported network of ImageNet's kind (resnet50 and others).
//
//   c++ -std=c++17 -O2 -I DIRECTORIES_OF_THE_THREE_HEADERS -o classify classify.cpp -ldl
//   ./classify model.so picture.ppm     (P6, of any size; or float32 values of the network's input, already normalized)
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>

#include "tilewright.hpp"

// The nearest pixels of a picture, as planes of normalized red, green and blue.
static std::vector<float> read_picture(const std::string &bytes, std::size_t height, std::size_t width) {
  const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
  std::istringstream head(bytes);
  std::string magic;
  std::size_t w = 0, h = 0, most = 0;
  head >> magic >> w >> h >> most;
  if (!head || most != 255) throw std::runtime_error("expected a PPM of 8 bits");
  std::size_t start = static_cast<std::size_t>(head.tellg()) + 1;
  if (bytes.size() < start + w * h * 3) throw std::runtime_error("the picture is cut off");
  std::vector<float> x;
  for (std::size_t c = 0; c < 3; c++)
    for (std::size_t i = 0; i < height; i++)
      for (std::size_t j = 0; j < width; j++) {
        auto value = static_cast<unsigned char>(bytes[start + (i * h / height * w + j * w / width) * 3 + c]);
        x.push_back((static_cast<float>(value) / 255.0f - mean[c]) / deviation[c]);
      }
  return x;
}

static std::vector<float> read_values(const std::string &bytes) {
  std::vector<float> x(bytes.size() / sizeof(float));
  std::memcpy(x.data(), bytes.data(), x.size() * sizeof(float));
  return x;
}

static void classify(const char *path, const char *image) {
  tilewright::Model model(path);
  tilewright::Shape shape = model.inputs().at(0).shape;
  if (shape.size() != 4 || shape[2] <= 0 || shape[3] <= 0) throw std::runtime_error("expected a network for images");
  shape[0] = 1;
  std::ifstream file(image, std::ios::binary);
  if (!file) throw std::runtime_error("the image cannot be opened");
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  bool is_picture = bytes.compare(0, 2, "P6") == 0;
  std::vector<float> x = is_picture ? read_picture(bytes, static_cast<std::size_t>(shape[2]), static_cast<std::size_t>(shape[3]))
                                    : read_values(bytes);

  tilewright::Session session(model);
  tilewright::Tensor output = session.run({tilewright::Tensor(x, shape)}).at(0);
  const float *scores = output.data<float>();
  std::vector<int> order(output.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[a] > scores[b]; });
  for (std::size_t i = 0; i < std::min<std::size_t>(5, order.size()); i++)
    std::printf("%4d %9.4f\n", order[i], static_cast<double>(scores[order[i]]));
}

int main(int count, char **words) {
  try {
    if (count != 3) throw std::runtime_error("usage: classify MODEL IMAGE");
    classify(words[1], words[2]);
  } catch (const std::exception &e) {
    std::fprintf(stderr, "classify: %s\n", e.what());
    return 1;
  }
}
