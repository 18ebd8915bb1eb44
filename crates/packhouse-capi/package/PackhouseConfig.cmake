# Packhouse's C library:
#   find_package(Packhouse 0.1 CONFIG REQUIRED)
#   target_link_libraries(engine PRIVATE Packhouse::packhouse)   # or Packhouse::packhouse_static
# Found from its own place, so that the whole prefix may be moved.

get_filename_component(_packhouse_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET Packhouse::packhouse)
  add_library(Packhouse::packhouse SHARED IMPORTED)
  set_target_properties(Packhouse::packhouse PROPERTIES
    IMPORTED_LOCATION "${_packhouse_prefix}/lib/libpackhouse.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_packhouse_prefix}/include")
endif()

if(NOT TARGET Packhouse::packhouse_static)
  add_library(Packhouse::packhouse_static STATIC IMPORTED)
  set_target_properties(Packhouse::packhouse_static PROPERTIES
    IMPORTED_LOCATION "${_packhouse_prefix}/lib/libpackhouse.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_packhouse_prefix}/include"
    INTERFACE_LINK_LIBRARIES "gcc_s;util;rt;pthread;m;dl;c")
endif()

unset(_packhouse_prefix)
