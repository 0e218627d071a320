"""What TVM makes of it: import, widening, build and run. The only room that imports TVM."""
