"""Arrays that go through a function on their way: `redistrib.reshard` with `through=`."""
