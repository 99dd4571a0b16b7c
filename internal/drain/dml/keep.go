package dml

import (
	"fmt"
	"slices"
	"strings"

	"sexton/internal/batch"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// Layout is the form in which sexton.undo stores the rows of a table, as the function
// undo_layout returns it.
type Layout struct {
	ID       int64
	Relation uint32
	// Columns holds the table's columns, and Types their types. Terms holds, for each
	// column, an aggregate over the CTE gone that returns the column's values. Size is
	// the expression for the size of a row, with %1$s in place of its alias.
	Columns, Types, Terms []string
	Size                  string
	Key                   []string
}

// Keep configures how the rows of a table are saved in sexton.undo when they are deleted
// or changed.
type Keep struct {
	*Layout

	// Exclude lists the columns that are not saved. A row larger than MaxRow bytes is not
	// saved. If Waits is set, the statement fails if it has such a row.
	Exclude []string
	MaxRow  int
	Waits   bool
	// Full makes statements count the rows instead of saving them. It is set if the saved
	// rows have reached their limit, or if undo does not save the table's rows.
	Full bool
}

// Kept describes how one statement saves its rows.
type Kept struct {
	*Keep

	// UseReturning is set if rows do not fit a statement that reads them before it
	// deletes them (ReadLeaf).
	UseReturning bool
	// ReadLeaf, if set, is the OID of the leaf whose rows the statement reads and deletes
	// in the same snapshot. RETURNING would fetch each row a second time. A concurrent
	// change must then be an error.
	ReadLeaf uint32
	// Origins are the IDs of the undo sets in which the deleted parents are saved.
	Origins []int64
}

// EnlargeMemory is an SQL expression that enlarges the memory of the server process for
// arrays and texts, once per session. The C library returns freed blocks to the kernel if
// they are larger than a limit, and the kernel clears them for the next statement. That
// takes a third of the time of saving rows. The limit grows with the largest block that
// was ever freed, so the expression allocates and frees a large block. Measured in page
// faults per statement: 4 MB are enough for 8,000 rows. With 16,000 rows there are 2,200
// more page faults than with 8 MB, and 16 MB saves no more. octet_length is used because
// counting the characters would take longer than creating the text.
const EnlargeMemory = `CASE WHEN pg_catalog.current_setting('sexton.room', true) IS NULL THEN pg_catalog.set_config('sexton.room', pg_catalog.octet_length(
	pg_catalog.repeat(pg_catalog.repeat('x', pg_catalog.current_setting('block_size')::pg_catalog.int4), 1000))::pg_catalog.text, false) END`

// Begin returns the statement that must precede a statement which saves rows. It creates
// the ID of the undo set in which the rows are saved. If the child is a parent too, its
// trigger reads that ID.
func (k *Kept) Begin(names pgcatalog.Names) batch.Statement {
	return batch.Statement{
		SQL: names.Render(`SELECT pg_catalog.set_config(
	'sexton.undo', pg_catalog.concat(pg_catalog.nextval('"sexton".undo_ids'), '/', $1::pg_catalog.oid), true), ` + EnlargeMemory),
		Args: []any{k.Relation},
	}
}

// keepDeleted returns a DELETE that saves its rows by RETURNING. The CTE gone has up to
// three more columns. They are named like system columns, since no column of a table can
// have these names:
//
//	xmin: true if the row is saved, false if it is too large
//	cmin: the number of the part in which the row is saved
//	cmax: the row's key, for the event
//
// The statement returns the number of deleted rows, since its affected rows are the
// inserted ones.
func (e *Edge) keepDeleted(names pgcatalog.Names, leaf pgcatalog.Table, keys Keys, where string, args *Args) string {
	k := keys.Keep
	deletion := Change(Remove, "ONLY "+leaf.SQL(), nil, "") + " WHERE " + where
	if k.ReadLeaf != 0 {
		return e.keepDeletedAsRead(names, leaf, keys, deletion, where, args)
	}
	returning, event := Qualified("child", k.Columns), ""
	if e.EmitsEvent {
		returning = append(returning, batch.RowKey("child", e.PrimaryKey, e.EventColumns)+" AS cmax")
		event = ",\nkeyed AS (SELECT gone.cmax AS key FROM gone),\nevent AS (" + e.event(names, "keyed") + ")"
	}
	if k.Size == "" {
		returning = append(returning, "true AS xmin")
		insert := k.insert("kept", "gone HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0", names, e, keys, nil, nil,
			k.Terms, "0", args)
		return fmt.Sprintf("WITH gone AS (%s RETURNING %s)%s,\n%s\n%s", deletion, strings.Join(returning, ", "), event,
			insert, fmt.Sprintf(total, "kept"))
	}
	most := fmt.Sprintf("$%d::pg_catalog.int8", args.Add(k.MaxRow))
	returning = append(returning, k.size("child")+" OPERATOR(pg_catalog.<=) "+most+" AS xmin")
	bytes := "least(" + k.size("gone") + ", " + most + ")"
	fewRows := "gone WHERE (SELECT taken.bytes FROM taken) OPERATOR(pg_catalog.<=) %d HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0"
	small := k.insert("small", fmt.Sprintf(fewRows, mostBytes), names, e, keys, nil, nil, k.Terms, "0", args)
	large := k.insert("large", fmt.Sprintf(`(
		SELECT gone.*, pg_catalog.sum(%s) OVER (ROWS UNBOUNDED PRECEDING) OPERATOR(pg_catalog./) %[2]d AS cmin
		FROM gone WHERE (SELECT taken.bytes FROM taken) OPERATOR(pg_catalog.>) %[2]d
	) AS gone GROUP BY pg_catalog.trunc(gone.cmin)`, bytes, mostBytes), names, e, keys, nil, nil, k.Terms, "0", args)
	return fmt.Sprintf("WITH gone AS (%s RETURNING %s)%s,\ntaken AS (SELECT coalesce(pg_catalog.sum(%s), 0) AS bytes FROM gone),\n%s,\n%s\n%s",
		deletion, strings.Join(returning, ", "), event, bytes, small, large,
		fmt.Sprintf(total, "(SELECT small.total FROM small UNION ALL SELECT large.total FROM large) AS kept"))
}

// size returns the expression for the size of a row. alias is the alias of the row.
func (k *Keep) size(alias string) string {
	return strings.NewReplacer("%1$s", alias, "%%", "%").Replace(k.Size)
}

// Separator precedes each value of a column whose values are saved as one text without
// quotes. Building an array of texts takes three times as long.
const Separator = `E'\x01'`

// Null represents NULL in a text in which Separator precedes each value.
const Null = `E'\x02'`

// keepDeletedAsRead returns a DELETE that reads and saves its rows in the same snapshot,
// without RETURNING. The function undo_set raises an error if a trigger, rule or policy
// of the table may prevent deletions, or if a row is larger than mostUnsummed. It also
// does so if a text contains Separator or is equal to Null.
func (e *Edge) keepDeletedAsRead(names pgcatalog.Names, leaf pgcatalog.Table, keys Keys, deletion, where string,
	args *Args,
) string {
	k, small := keys.Keep, "true"
	if k.Size != "" {
		small = fmt.Sprintf("%s OPERATOR(pg_catalog.<=) %d", k.size("child"), min(k.MaxRow, mostUnsummed))
	}
	terms, unfit := slices.Clone(k.Terms), "0"
	for i, column := range k.Columns {
		if slices.Contains(k.Key, column) || !slices.Contains([]string{"pg_catalog.text", "pg_catalog.varchar"},
			k.Types[i]) {
			// The triggers of undo read the keys of saved rows, so the keys keep their
			// form.
			continue
		}
		name := pgcatalog.Quote(column)
		joined := fmt.Sprintf(`pg_catalog.string_agg(coalesce(gone.%s, %s) COLLATE pg_catalog."C", %s) FILTER (WHERE gone.xmin)`, name, Null, Separator)
		terms[i] = fmt.Sprintf("pg_catalog.concat(%s, %s)", Separator, joined)
		small += fmt.Sprintf(` AND (child.%s COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) %s) IS NOT TRUE`, name, Null)
		unfit += fmt.Sprintf(" OPERATOR(pg_catalog.+) coalesce(pg_catalog.octet_length(%[1]s) OPERATOR(pg_catalog.-) "+
			"pg_catalog.octet_length(pg_catalog.replace(%[1]s, %[2]s, '')) OPERATOR(pg_catalog.-) pg_catalog.count(*) FILTER (WHERE gone.xmin) "+
			"OPERATOR(pg_catalog.+) 1, 0)", joined, Separator)
	}
	rows := fmt.Sprintf("(SELECT %s, %s AS xmin FROM ONLY %s AS child WHERE %s OFFSET 0) AS gone HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0",
		strings.Join(Qualified("child", k.Columns), ", "), small, leaf.SQL(), where)
	insert := k.insert("kept", rows, names, e, keys, nil, nil, terms, unfit, args)
	return fmt.Sprintf("WITH %s,\ngone AS (%s)\n%s", insert, deletion, fmt.Sprintf(total, "kept"))
}

const (
	// mostUnsummed is the maximum size of a row, in bytes, for keepDeletedAsRead. It is
	// so small that the statement need not limit the total size of its rows.
	mostUnsummed = 1000
	// mostBytes is the total size, in bytes, above which the rows of a statement are
	// saved in parts, since Postgres limits the size of a value.
	mostBytes = 64 << 20
	total     = "SELECT coalesce(pg_catalog.sum(kept.total), 0)::pg_catalog.int8 FROM %s"
)

// keepChanged returns an UPDATE that saves the keys of its rows and the old values of the
// columns that it sets. If another session changes a row while the statement is running,
// a later statement changes that row.
func (e *Edge) keepChanged(names pgcatalog.Names, keys Keys, set []string, update, table, inLeaf, where string,
	args *Args,
) string {
	k := keys.Keep
	fields := slices.Clone(k.Key)
	for _, column := range slices.Concat(set, e.Columns) {
		if !slices.Contains(fields, column) {
			fields = append(fields, column)
		}
	}
	terms := make([]string, 0, len(fields))
	for _, field := range fields {
		if n := slices.Index(k.Columns, field); n >= 0 && len(k.Key) > 0 {
			terms = append(terms, k.Terms[n])
		}
	}
	if len(terms) < len(fields) {
		terms = nil // Without the key or one of the columns, a row could not be restored.
	}
	return fmt.Sprintf(`WITH was AS MATERIALIZED (SELECT child.ctid AS ctid, %s FROM %s AS child WHERE %s%s%s),
gone AS (%s FROM was WHERE %schild.ctid OPERATOR(pg_catalog.=) was.ctid RETURNING %s, true AS xmin),
%s
%s`, strings.Join(Qualified("child", fields), ", "), table, inLeaf, where, e.Lock(), update, inLeaf, strings.Join(Qualified("was", fields), ", "),
		k.insert("kept", "gone HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0", names, e, keys, fields, set, terms,
			"0", args),
		fmt.Sprintf(total, "kept"))
}

// insert returns the CTE that inserts the rows of the CTE gone into Sexton's undo table.
// For changed rows, columns are the saved columns and set the changed columns. unfit is
// an SQL expression for the number of rows that cannot be saved in this form. If it is
// above 0, the function undo_set raises an error.
func (k *Kept) insert(cte, from string, names pgcatalog.Names, e *Edge, keys Keys, columns, set, terms []string,
	unfit string, args *Args,
) string {
	rows, left, kept := "pg_catalog.count(*) FILTER (WHERE gone.xmin)",
		"pg_catalog.count(*) FILTER (WHERE NOT gone.xmin)",
		"ARRAY["+strings.Join(terms, ", ")+"]"
	if k.Full || terms == nil {
		rows, left, kept = "0", "pg_catalog.count(*)", "NULL"
	}
	array := func(values []string) string {
		return "ARRAY[" + strings.Join(render.Each(values, pgcatalog.Literal), ", ") + "]::pg_catalog.text[]"
	}
	fields, changed, written := "NULL", "NULL", "NULL"
	if set != nil {
		fields, changed = array(columns), array(set)
		if e.Action == Assign {
			written = e.Target.Kept(names, args)
		}
	}
	return fmt.Sprintf(`%[17]s AS (
	INSERT INTO %[1]s (id, number, layout, rows, left_out, origins, via, keys, parent, fields, changed, written, c)
	SELECT pg_catalog.split_part(pg_catalog.current_setting('sexton.undo'), '/', 1)::pg_catalog.int8,
		%s($%d::pg_catalog.oid, $%d::pg_catalog.int8, $%d::pg_catalog.text[], %s OPERATOR(pg_catalog.+) %[20]s,
			%[8]t, %[19]d::pg_catalog.oid), $%[4]d::pg_catalog.int8, %[7]s, %[6]s, $%[9]d::pg_catalog.int8[],
		%[10]s, %[11]s, $%[16]d::pg_catalog.oid, %[12]s, %[13]s, %[14]s, %[15]s
	FROM %[18]s
	RETURNING rows OPERATOR(pg_catalog.+) left_out AS total
)`,
		names.Render(`"sexton".undo`), names.Render(`"sexton".undo_set`), args.Add(k.Relation), args.Add(k.ID),
		args.Add(k.Exclude), left, rows,
		k.Waits && !k.Full, args.Add(k.Origins), array(e.Columns), array(keys.Of.KeyColumns), fields, changed, written,
		kept, args.Add(keys.Of.OID), cte, from,
		k.ReadLeaf, unfit)
}
