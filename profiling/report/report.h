// A profile as a page: one file that a browser shows, with no network.
//
//   std::string page = HtmlReport(command::ProfileJson(report));  // attnlab profile --html=FILE
//
// The page has the roofline, HBM traffic and time against sequence length, the throughput of each
// kernel, all rows as a table, and the launches of each call on a timeline. report.html is its
// template: a script in it reads the JSON and draws.
#ifndef PROFILING_REPORT_REPORT_H_
#define PROFILING_REPORT_REPORT_H_

#include <string>

#include "nlohmann/json.hpp"

namespace attnlab::profiling {

// The page of what `attnlab profile --json` prints. There are no errors: what the JSON lacks, or
// has as null, the page shows as "-" or leaves out of a figure; a text that is not UTF-8 has
// U+FFFD where it is not. No text can end the element that the JSON stands in.
std::string HtmlReport(const nlohmann::ordered_json& profile);

}  // namespace attnlab::profiling

#endif  // PROFILING_REPORT_REPORT_H_
