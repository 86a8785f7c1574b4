// What every binding is tried with; see test_bindings.py.
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <thread>

#include "tilewright.hpp"

using namespace tilewright;

static std::string list(const std::vector<std::string> &parts) {
  std::string out;
  for (const auto &p : parts) out += (out.empty() ? "" : ", ") + p;
  return "[" + out + "]";
}

static void show(const Model &model) {
  for (const auto &s : model.inputs()) std::cout << "input " << s.name << " " << text(s.dtype) << " " << list(s.dims) << "\n";
  for (const auto &s : model.outputs()) std::cout << "output " << s.name << " " << text(s.dtype) << " " << list(s.dims) << "\n";
}

static std::vector<float> values(const char *path, std::size_t count) {
  std::vector<float> x(count);
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char *>(x.data()), static_cast<std::streamsize>(count * 4));
  return x;
}

static void keep(const char *path, const void *data, std::size_t count) {
  std::ofstream(path, std::ios::binary).write(static_cast<const char *>(data), static_cast<std::streamsize>(count * 4));
}

template <class F>
static void refused(bool with_message, F action) {
  try {
    action();
    std::cout << "no error\n";
  } catch (const Error &e) {
    std::cout << "error " << e.status() << (with_message ? std::string(" ") + e.what() : "") << "\n";
  }
}

int main(int, char **words) {
  std::optional<Session> a, b;
  {
    Model first(words[1]), second(words[2]);
    show(first), show(second);
    a.emplace(first, 2), b.emplace(second, 1);
  }  // sessions keep what they need
  std::vector<float> x = values(words[3], 5 * 32), picture = values(words[4], 3 * 32 * 32), y(50);
  Shape shape = a->shapes({Tensor(x.data(), {7, 32})})[0];
  std::cout << "shapes " << list({std::to_string(shape[0]), std::to_string(shape[1])}) << "\n";
  std::thread beside([&] {
    for (int i = 0; i < 20; i++) b->run({Tensor(picture, {1, 3, 32, 32})});
  });
  Tensor result = a->run({Tensor(x, {5, 32})})[0];
  beside.join();
  keep("y.bin", result.data<float>(), result.size());
  Tensor scores = b->run({Tensor(picture, {1, 3, 32, 32})})[0];
  keep("scores.bin", scores.data<float>(), scores.size());
  a->run({Tensor(x, {5, 32})}, {Tensor(y, {5, 10})});
  keep("given.bin", y.data(), y.size());
  refused(true, [&] { a->run({Tensor(x.data(), {5, 31})}); });
  refused(true, [&] { a->run({Tensor(x, {5, 32})}, {Tensor(y.data(), {5, 9})}); });
  refused(false, [] { Model lost("lost.so"); });
  refused(true, [&] { Model damaged("damaged.so", words[5]); });
  Model packed(words[6], words[5]);
  Session third(packed);
  Tensor same = third.run({Tensor(x, {5, 32})})[0];
  keep("packed.bin", same.data<float>(), same.size());
  *a = std::move(*b);
  b.reset();
  return a->run({Tensor(picture, {1, 3, 32, 32})})[0].size() == 24 ? 0 : 1;
}
