// How does Python choose threads and an instruction set?  What runs on them is bound beside this.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bind.h"
#include "cpu.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starshade {
namespace {

constexpr std::size_t kMaxThreads = 256;

void new_cpu(Cpu* self, std::size_t num_threads, const std::string& isa) {
  require(num_threads >= 1 && num_threads <= kMaxThreads, "num_threads is out of range");
  for (const Isa& usable : usable_isas()) {
    if (isa.empty() || isa == usable.name) {
      new (self) Cpu(num_threads, usable);
      return;
    }
  }
  throw std::invalid_argument("the instruction set is unknown or not usable here");
}

nb::tuple isa_names() {
  nb::list names;
  for (const Isa& usable : usable_isas()) names.append(usable.name);
  return nb::tuple(names);
}

}  // namespace
}  // namespace starshade

NB_MODULE(_native, module) {
  using namespace starshade;
  module.def("isas", &isa_names);
  nb::class_<Cpu>(module, "Cpu")
      .def("__init__", &new_cpu, "num_threads"_a, "isa"_a = "")
      .def_prop_ro("num_threads", [](const Cpu& cpu) { return cpu.threads.num_threads(); })
      .def_prop_ro("isa", [](const Cpu& cpu) { return cpu.isa.name; })
      .def_prop_ro("takes_bf16", [](const Cpu& cpu) { return cpu.isa.matmul.multiply_bf16 != nullptr; });
  bind_matmul(module);
  bind_model(module);
  bind_kv(module);
  bind_probe(module);
}
