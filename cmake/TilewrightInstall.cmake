# Installed by the house helper: headers, archive, CMake package.
