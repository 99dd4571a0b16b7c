// Package drain deletes or changes the rows that refer to given keys, in small transactions, so that no statement sets off a cascade which takes
// longer than a statement may.
//
// An Edge is one column list that refers to a Key; it makes the statements on rows of Keys, one leaf table at a time: those of loose foreign keys,
// of the columns that refer to users, and of their dry runs. Lacking tells which privileges edges miss.
//
// Read and Expand find in the catalogue which tables hang below others (Table, Ref). Run.Clear then takes down what hangs below the rows
// of a Window, children first; what nothing can hang below goes by the statement that finds it (sweep). It keeps nothing that is needed later:
// killed anywhere, the next one finds what is left and goes on.
//
//	keys ── Edge ──> rows                    a loose foreign key, a column of users
//	rows ── Ref ───> rows ── Ref ───> rows   what native cascades would take along: Clear begins at the right
//
// Run.Pieces climbs a Ladder with rows: it makes statements smaller after a timeout, leaves out locked rows, tries deadlocks again and halves around
// a row that fails. Users' columns and trees use it. Loose foreign keys share its Size alone: their chunks give way to other parents between
// two tries.
//
// Its one invariant: a statement decides by the keys and versions of rows that its own snapshot shows, never by an earlier look.
package drain
