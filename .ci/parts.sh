# Parts of a run, each with its time, and a table of them at the end. `.ci/run` and `.ci/long` source this file.
part_names=() part_seconds=() part_ends=()

# Begin a part; the one before it ends.
part() {
  end_part
  part_name=$* part_began=$SECONDS part_end=passed
  printf '\n== %s\n' "$*"
}

end_part() {
  if [ -n "${part_name:-}" ]; then
    part_names+=("$part_name") part_seconds+=($((SECONDS - part_began))) part_ends+=("$part_end")
  fi
  part_name=
}

# Run a command. If it fails, so does its part; the next parts run all the same, so that one run tells all.
check() {
  "$@" || part_end=FAILED
}

# Print the table. 1 if a part failed.
table() {
  end_part
  local i failed=0
  printf '\n%8s  %-7s %s\n' seconds result part
  for i in "${!part_names[@]}"; do
    printf '%8d  %-7s %s\n' "${part_seconds[i]}" "${part_ends[i]}" "${part_names[i]}"
    [ "${part_ends[i]}" = passed ] || failed=1
  done
  printf '%8d  in all\n' "$SECONDS"
  return "$failed"
}
