#pragma once

#include <optional>
#include <string>

#include "tilewright/device_spec.h"
#include "tilewright/result.h"

namespace tilewright {

// The rates that were measured on a device class, in a file of its own in the cache folder
// (docs/device_rates.md): machines of different classes that share the folder do not interfere.
// Safe for any number of processes; the last one that writes wins.

/// <folder>/rates/<16 digits>.json. kUnavailable if no digest can be computed.
Result<std::string> RatesPath(const std::string& folder, const std::string& class_id);

/// The rates that are stored for the class. nullopt where there are none, or none that can be
/// used: a damaged file, one of another class, a rate that is missing, negative or not finite.
std::optional<DeviceRates> LoadRates(const std::string& folder, const std::string& class_id);

/// Writes the file in one step and makes its folders.
Status SaveRates(const std::string& folder, const std::string& class_id, const DeviceRates& rates);

}  // namespace tilewright
