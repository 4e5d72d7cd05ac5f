"""Floor 2: a program as sets and relations, its order as a loop tree, and what is proved.

`tree` and `model` hold a program; they know no isl. `isl` is the only module that imports islpy:
it builds sets from rows of integers and reads them back. `relation` keeps domains, accesses and
placements as isl objects, remembered on the immutable statements. On these stand the answers:
`conflict` (pairs of instances that share a cell), `legality` (does a step turn one around, does
a loop carry one, and the smallest witness), `access` (footprints, what a stage must compute, is
each read covered), `bounds` (boxes, reads outside an array, is a layout one to one).
Start with `model.Program` and `legality.turned`.
"""
