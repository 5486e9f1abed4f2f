#include "tools/command/replay_plot.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tools/lib/json.h"
#include "tools/lib/table.h"

namespace attnlab::command {
namespace {

using paged::ReplayReport;

constexpr char kStyle[] = R"(<style>
text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:#333}
.title{font-size:15px;font-weight:600;fill:#111}
.end{text-anchor:end}.middle{text-anchor:middle}
.paper{fill:#fff}.grid{stroke:#000;stroke-opacity:.1}.axis{stroke:#888}
.free{fill:#e9edf1}.evictable{fill:#a9cbea}.used{fill:#2467ad}.running{fill:#3f8f5f}
.reserved{stroke:#c8372d;stroke-width:1.6;fill:none}.pool{stroke:#555;stroke-dasharray:5 3}
@media (prefers-color-scheme:dark){
text{fill:#c9ced6}.title{fill:#f2f4f7}
.paper{fill:#15181d}.grid{stroke:#fff}.axis{stroke:#7d8590}
.free{fill:#262c34}.evictable{fill:#2f5681}.used{fill:#5ba2ec}.running{fill:#5fb884}
.reserved{stroke:#ff8078}.pool{stroke:#aab2bd}}
</style>
)";

// Places of the picture, in pixels.
constexpr double kWidth = 900, kHeight = 560, kLeft = 72, kRight = 822;
constexpr double kPagesTop = 108, kPagesBottom = 380, kRunningTop = 424, kRunningBottom = 506;

// For XML: other characters than that a file cannot have.
std::string Escaped(absl::string_view text) {
  constexpr size_t kMost = 110;
  // The JSON library replaces what is not UTF-8.
  const auto replace = Json::error_handler_t::replace;
  const Json valid = Json::parse(Json(std::string(text)).dump(-1, ' ', false, replace), nullptr,
                                 /*allow_exceptions=*/false);
  std::string clean = valid.is_string() ? valid.get<std::string>() : "";
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  if (clean.size() > kMost) {
    size_t end = kMost;
    while ((clean[end] & 0xC0) == 0x80) --end;  // inside a character
    clean = absl::StrCat(clean.substr(0, end), "…");
  }
  return absl::StrReplaceAll(clean,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// 1, 2 or 5 times a power of ten, at least so large that `most` has at most `count` of them.
double RoundStep(double most, int count) {
  const double least = most / count;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1., 2., 5.}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

struct Unit {
  const char* name;
  double size;
};

Unit TimeUnit(double seconds) {
  if (seconds >= 3 * 86400) return {"days", 86400};
  if (seconds >= 3 * 3600) return {"h", 3600};
  if (seconds >= 300) return {"min", 60};
  return {"s", 1};
}

Unit ByteUnit(double bytes) {
  if (bytes >= 0x1p40) return {"TiB", 0x1p40};
  if (bytes >= 0x1p30) return {"GiB", 0x1p30};
  if (bytes >= 0x1p20) return {"MiB", 0x1p20};
  return {"KiB", 0x1p10};
}

class Plot {
 public:
  Plot(const ReplayReport& report, double bytes_per_page)
      : report_(report), bytes_per_page_(bytes_per_page), seconds_(std::max(report.seconds, 1e-9)) {
    const auto pool = static_cast<double>(std::max<int64_t>(report.pages, 1));
    // What contiguous preallocation reserves can be much more than the pool.
    reserved_ = report.ContiguousSlots(report.crowd) / static_cast<double>(report.page);
    most_pages_ = 1.04 * std::max(pool, std::min(reserved_, 2 * pool));
    most_running_ = 1.08 * std::max(report.crowd.sequences, 1.);
  }

  std::string Svg(absl::string_view title, absl::string_view subtitle) {
    const std::string name = Escaped(title);
    absl::StrAppendFormat(&svg_,
                          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
                          "width=\"%g\" height=\"%g\" role=\"img\">\n<title>%s</title>\n",
                          kWidth, kHeight, kWidth, kHeight, name);
    absl::StrAppend(&svg_, kStyle);
    absl::StrAppendFormat(&svg_,
                          "<clipPath id=\"pages\"><rect x=\"%g\" y=\"%g\" width=\"%g\" "
                          "height=\"%g\"/></clipPath>\n",
                          kLeft, kPagesTop, kRight - kLeft, kPagesBottom - kPagesTop);
    Rect("paper", 0, 0, kWidth, kHeight);
    Text(kLeft, 28, "title", name);
    Text(kLeft, 50, "", Escaped(subtitle));
    Legend();
    Pages();
    Running();
    Time();
    absl::StrAppend(&svg_, "</svg>\n");
    return std::move(svg_);
  }

 private:
  using ValueOf = std::function<double(const ReplayReport::Sample&)>;

  double X(double seconds) const { return kLeft + seconds / seconds_ * (kRight - kLeft); }
  double PagesY(double pages) const {
    return kPagesBottom - pages / most_pages_ * (kPagesBottom - kPagesTop);
  }
  double RunningY(double running) const {
    return kRunningBottom - running / most_running_ * (kRunningBottom - kRunningTop);
  }

  void Text(double x, double y, absl::string_view style, absl::string_view text) {
    absl::StrAppendFormat(&svg_, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n", x, y,
                          style, text);
  }
  void Rect(absl::string_view style, double x, double y, double width, double height) {
    absl::StrAppendFormat(
        &svg_, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", style,
        x, y, width, height);
  }
  void Line(absl::string_view style, double x1, double y1, double x2, double y2) {
    absl::StrAppendFormat(&svg_,
                          "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                          style, x1, y1, x2, y2);
  }

  // Stairs through all samples; what is below them, if they are filled.
  void Stairs(absl::string_view style, bool filled, double bottom, const ValueOf& y_of) {
    std::string path;
    double last = bottom;
    const auto& samples = report_.samples;
    if (samples.empty()) return;
    for (size_t i = 0; i < samples.size(); ++i) {
      const double y = y_of(samples[i]), x = X(static_cast<double>(i) * report_.sample_seconds);
      if (i == 0) {
        absl::StrAppendFormat(&path, "M%.1f %.1fV%.1f", x, filled ? bottom : y, y);
      } else if (std::abs(y - last) >= 0.05) {
        absl::StrAppendFormat(&path, "H%.1fV%.1f", x, y);
      } else {
        continue;
      }
      last = y;
    }
    absl::StrAppendFormat(&path, "H%.1f", kRight);
    if (filled) absl::StrAppendFormat(&path, "V%.1fZ", bottom);
    absl::StrAppendFormat(&svg_, "<path class=\"%s\" clip-path=\"%s\" d=\"%s\"/>\n", style,
                          bottom == kPagesBottom ? "url(#pages)" : "none", path);
  }

  // Round ticks of an axis on the left or right.
  void Ticks(double most, double step, bool left, const std::function<double(double)>& y_of) {
    for (double value = 0; value <= most; value += step) {
      const double y = y_of(value);
      if (left) Line("grid", kLeft, y, kRight, y);
      Text(left ? kLeft - 8 : kRight + 8, y + 4, left ? "end" : "", absl::StrCat(value));
    }
  }

  void Legend() {
    double x = kLeft;
    const auto entry = [&](absl::string_view style, bool line, absl::string_view text) {
      if (line) {
        Line(style, x, 73, x + 16, 73);
      } else {
        Rect(style, x, 67, 16, 12);
      }
      Text(x + 22, 77, "", text);
      x += 22 + 6.9 * static_cast<double>(text.size()) + 18;
    };
    entry("used", false, "in use");
    entry("evictable", false, "evictable");
    entry("free", false, "free");
    entry("pool", true, "the pool");
    entry("reserved", true,
          absl::StrFormat("contiguous preallocation, up to %.0f pages", reserved_));
  }

  void Pages() {
    const auto page = static_cast<double>(report_.page);
    const double top = PagesY(static_cast<double>(report_.pages));
    Rect("free", kLeft, top, kRight - kLeft, kPagesBottom - top);
    Stairs("evictable", true, kPagesBottom, [this](const ReplayReport::Sample& s) {
      return PagesY(static_cast<double>(s.used + s.evictable));
    });
    Stairs("used", true, kPagesBottom,
           [this](const ReplayReport::Sample& s) { return PagesY(static_cast<double>(s.used)); });
    Ticks(most_pages_, std::max(1., RoundStep(most_pages_, 8)), true,
          [this](double pages) { return PagesY(pages); });
    Line("pool", kLeft, top, kRight, top);
    Stairs("reserved", false, kPagesBottom, [&](const ReplayReport::Sample& s) {
      return PagesY(static_cast<double>(s.running * report_.longest) / page);
    });
    Line("axis", kLeft, kPagesBottom, kRight, kPagesBottom);
    Text(kLeft - 8, kPagesTop - 10, "end", "pages");
    const Unit unit = ByteUnit(most_pages_ * bytes_per_page_);
    const double most = most_pages_ * bytes_per_page_ / unit.size;
    Ticks(most, RoundStep(most, 6), false,
          [&](double bytes) { return PagesY(bytes * unit.size / bytes_per_page_); });
    Text(kRight + 8, kPagesTop - 10, "", unit.name);
  }

  void Running() {
    Stairs("running", true, kRunningBottom, [this](const ReplayReport::Sample& s) {
      return RunningY(static_cast<double>(s.running));
    });
    Ticks(most_running_, std::max(1., RoundStep(most_running_, 3)), true,
          [this](double running) { return RunningY(running); });
    Line("axis", kLeft, kRunningBottom, kRight, kRunningBottom);
    Text(kLeft, kRunningTop - 8, "", "running sequences");
  }

  void Time() {
    const Unit unit = TimeUnit(seconds_);
    const double most = seconds_ / unit.size, step = RoundStep(most, 8);
    for (double value = 0; value <= most * (1 + 1e-9); value += step) {
      const double x = X(value * unit.size);
      Line("axis", x, kRunningBottom, x, kRunningBottom + 5);
      Line("axis", x, kPagesBottom, x, kPagesBottom + 5);
      Text(x, kRunningBottom + 19, "middle", absl::StrFormat("%g", value));
    }
    Text((kLeft + kRight) / 2, kRunningBottom + 40, "middle",
         absl::StrCat("time (", unit.name, ")"));
  }

  const ReplayReport& report_;
  const double bytes_per_page_, seconds_;
  double reserved_, most_pages_, most_running_;
  std::string svg_;
};

}  // namespace

std::string ReplaySvg(const ReplayReport& report, absl::string_view title,
                      int64_t bytes_per_token) {
  const auto percent = [](double share) { return absl::StrCat(Digits(100 * share), " %"); };
  const int64_t page_bytes = bytes_per_token * report.page;
  return Plot(report, static_cast<double>(page_bytes))
      .Svg(title,
           absl::StrCat(Counted(report.pages, "page"), " of ", Counted(report.page, "token"), ", ",
                        Bytes(report.pages * page_bytes), "; hit rate ", percent(report.HitRate()),
                        "; waste ", percent(report.Waste(report.average)), ", contiguous ",
                        percent(report.ContiguousWaste(report.average))));
}

}  // namespace attnlab::command
