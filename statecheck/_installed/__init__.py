"""The folder that an installed statecheck has the other rooms in; in a checkout they lie beside `statecheck`."""
