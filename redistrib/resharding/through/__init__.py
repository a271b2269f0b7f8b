"""Arrays that take another form on the way: what `redistrib.reshard` does with `through=`."""
