// Uses this workspace's definition of the JSON library, not the one of attnlab_deps().
#include "nlohmann/json.hpp"

#ifndef JSON_OF_DOWNSTREAM
#error "attnlab_deps() has replaced this workspace's @nlohmann_json"
#endif

int main() { return nlohmann::json::parse("[1, 2]").size() == 2 ? 0 : 1; }
