# cuda-gdb -batch -x stale_maximum.gdb --args planted_debug stale_maximum
# Stops in the kernel where the first weight is computed, and prints the values it is computed from.
set pagination off
set confirm off
set breakpoint pending on
break planted.cu:@LINE(stale_maximum)@
run
info cuda kernels
print begin
print score
print new_max
print relative_to
next
print weight
kill
