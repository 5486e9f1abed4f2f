// A profile as one HTML file, which a browser shows without a network.
//
//   std::string page = HtmlReport(command::ProfileJson(report));  // attnlab profile --html=FILE
//
// The page has the roofline, HBM traffic and time against sequence length, the throughput of each
// kernel, a table of all rows, and a timeline of each call's launches. report.html is its template;
// a script in it reads the JSON and draws.
#ifndef PROFILING_REPORT_REPORT_H_
#define PROFILING_REPORT_REPORT_H_

#include <string>

#include "nlohmann/json.hpp"

namespace attnlab::profiling {

// The page for the output of `attnlab profile --json`. There are no errors: the page shows "-" for
// a missing or null field, or leaves it out of a figure. Text that is not UTF-8 gets U+FFFD for
// each invalid byte. No text can end the element that holds the JSON.
std::string HtmlReport(const nlohmann::ordered_json& profile);

}  // namespace attnlab::profiling

#endif  // PROFILING_REPORT_REPORT_H_
