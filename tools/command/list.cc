// attnlab list: kernels, devices and presets.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "attention/core/kernel.h"
#include "attention/core/registry.h"
#include "attention/core/runs_on.h"
#include "attention/cuda/machine.h"
#include "tools/command/command.h"
#include "tools/command/machine.h"
#include "tools/command/presets.h"
#include "tools/command/support.h"
#include "tools/command/version.h"
#include "tools/lib/arguments.h"
#include "tools/lib/json.h"
#include "tools/lib/table.h"

namespace attnlab::command {
namespace {

// A device for probing the kernel: one of this machine if it has one, otherwise a typical GPU.
DeviceInfo ProbeDevice(const Kernel& kernel, const std::vector<DeviceInfo>& devices) {
  const KernelTraits& traits = kernel.traits();
  for (const DeviceInfo& device : devices) {
    if (RunsOn(traits, device).ok()) return device;
  }
  const std::vector<int>& built = traits.compute_capabilities;
  return TypicalGpu(built.empty() ? 80 : *std::max_element(built.begin(), built.end()));
}

std::string BuiltFor(const KernelTraits& traits) {
  if (traits.device == DeviceKind::kCpu) return "cpu";
  if (traits.compute_capabilities.empty()) return "cuda";
  return absl::StrCat("cuda sm_", absl::StrJoin(traits.compute_capabilities, " sm_"));
}

std::string Shape(const Model& model) {
  return absl::StrCat("hq=", model.query_heads, ",hkv=", model.kv_heads, ",d=", model.head_dim);
}

// `all` adds keys and changes none.
Json KernelJson(const KernelTraits& traits, const Support& support, bool all) {
  Json json = {{"name", traits.name},
               {"summary", traits.summary},
               {"device", traits.device == DeviceKind::kCpu ? "cpu" : "cuda"},
               {"compute_capabilities", traits.compute_capabilities},
               {"dtypes", support.dtypes},
               {"head_dims", Ranges(support.head_dims)},
               {"masks", support.masks},
               {"lengths", support.lengths},
               {"features", support.features}};
  if (!all) return json;
  json["preference"] = traits.preference;
  json["config_keys"] = traits.config_keys;
  json["variants"] = traits.variants;
  json["needs_aligned_rows"] = traits.needs_aligned_rows;
  json["all_head_dims"] = support.head_dims;
  return json;
}

}  // namespace

int List(const Arguments& arguments, const Streams& streams) {
  Formats formats;
  bool all = false;
  ArgumentParser parser("attnlab list",
                        "Lists the kernels of this program and what each supports, the presets, "
                        "and the devices of this machine.");
  AddJsonFlag(&parser, &formats);
  parser.AddBool("all", &all,
                 "with --json: more keys, such as config_keys and all_head_dims [false]");
  parser.AddSection("Examples",
                    "attnlab list\n"
                    "attnlab list --json | jq -r '.kernels[].name'\n"
                    "attnlab list --json --all > kernels.json");
  int code = kOk;
  if (ParsedToEnd(&parser, "list", arguments, streams, &code)) return code;
  if (all && formats.json.empty()) {
    return Fail(streams, "list", absl::InvalidArgumentError("--all goes with --json"));
  }
  absl::StatusOr<ResultFiles> files = ResultFiles::Create(formats);
  if (!files.ok()) return Fail(streams, "list", files.status());

  std::vector<DeviceInfo> devices = {CpuInfo()};
  const absl::StatusOr<std::vector<DeviceInfo>> gpus = CudaInfo();
  if (gpus.ok()) devices.insert(devices.end(), gpus->begin(), gpus->end());

  Json json = {{"attnlab", AttnlabJson()},
               {"devices", Json::array()},
               {"cuda", nullptr},
               {"kernels", Json::array()},
               {"presets", Json::array()}};
  Table device_table({{"device", Table::kLeft},
                      {"name", Table::kLeft},
                      {"", Table::kLeft},
                      {"memory", Table::kRight},
                      {"last-level cache", Table::kRight}});
  for (const DeviceInfo& info : devices) {
    json["devices"].push_back(MachineJson(info));
    device_table.AddRow(
        {ToString(info.device), info.name, MachineSummary(info), Bytes(info.memory_bytes),
         info.last_level_cache_bytes > 0 ? Bytes(info.last_level_cache_bytes) : "not known"});
  }
  if (!gpus.ok()) json["cuda"] = std::string(gpus.status().message());

  Table kernel_table({{"kernel", Table::kLeft},
                      {"runs on", Table::kLeft},
                      {"dtypes", Table::kLeft},
                      {"masks", Table::kLeft},
                      {"head dims", Table::kLeft},
                      {"lengths", Table::kLeft},
                      {"features", Table::kLeft}});
  std::string notes;
  for (const Kernel* kernel : Registry::Global().All()) {
    const KernelTraits& traits = kernel->traits();
    const Support support = Probe(*kernel, ProbeDevice(*kernel, devices));
    const auto words = [](const std::vector<std::string>& list) {
      return list.empty() ? std::string("-") : absl::StrJoin(list, " ");
    };
    kernel_table.AddRow({traits.name, BuiltFor(traits), words(support.dtypes), words(support.masks),
                         support.head_dims.empty() ? "-" : Ranges(support.head_dims),
                         words(support.lengths), words(support.features)});
    absl::StrAppend(&notes, "  ", traits.name, ": ", traits.summary,
                    traits.preference == 0 ? "; for checking, never the default" : "", "\n");
    if (traits.needs_aligned_rows) {
      absl::StrAppend(&notes,
                      "    rows of Q, K and V must lie at multiples of 16 bytes; otherwise "
                      "the default is another kernel\n");
    }
    for (const std::string& key : traits.config_keys) {
      absl::StrAppend(&notes, "    --config ", key, "\n");
    }
    json["kernels"].push_back(KernelJson(traits, support, all));
  }

  Table preset_table({{"preset", Table::kLeft}, {"problem", Table::kLeft}, {"from", Table::kLeft}});
  const auto add_preset = [&](const std::string& name, const std::string& problem,
                              const std::string& source) {
    preset_table.AddRow({name, problem, source});
    json["presets"].push_back({{"name", name}, {"problem", problem}, {"source", source}});
  };
  add_preset("gpt2", PresetLine("gpt2").value_or(""), "b=8 t=1024 c=768 nh=12");
  for (const Model& model : Models()) {
    add_preset(absl::StrCat(model.name, "-PHASE-LENGTH"), Shape(model), std::string(model.source));
  }

  if (const absl::Status s = files->Write(json, {}, streams); !s.ok()) {
    return Fail(streams, "list", s);
  }
  if (formats.Tables()) {
    streams.out << "Devices\n\n" << device_table.Text(streams.colours, streams.columns);
    if (!gpus.ok()) streams.out << "\nNo GPU: " << gpus.status().message() << "\n";
    streams.out << "\nKernels\n\n";
    if (kernel_table.rows() == 0) {
      streams.out << "This program links none.\n";
    } else {
      streams.out << kernel_table.Text(streams.colours, streams.columns) << "\n" << notes;
    }
    streams.out << "\nPresets\n\n"
                << preset_table.Text(streams.colours, streams.columns)
                << "\nPHASE is prefill or decode, LENGTH tokens as in 512 or 4k.\n";
  }
  if (const absl::Status s = Registry::Global().Check(); !s.ok()) {
    return Fail(streams, "list", s);
  }
  return kOk;
}

}  // namespace attnlab::command
