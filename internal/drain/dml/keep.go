package dml

import (
	"fmt"
	"slices"
	"strings"

	"sexton/internal/batch"
	"sexton/internal/each"
	"sexton/internal/pgcatalog"
)

// Layout is how the rows of a table are kept, as the function undo_layout has it.
type Layout struct {
	ID       int64
	Relation uint32
	// Columns are the table's, Types theirs, Terms the expression for each of them over the rows of gone, Size that of a row, in which %1$s is its alias.
	Columns, Types, Terms []string
	Size                  string
	Key                   []string
}

// Keep says how rows are kept in sexton.undo by the statement that deletes or changes them.
type Keep struct {
	*Layout

	// Exclude are the columns that are not kept, MaxRow the size from which on a row is not; with Waits the statement then fails.
	Exclude []string
	MaxRow  int
	Waits   bool
	// Full has rows counted alone.
	Full bool
	// Ahead, if set, is the leaf whose rows the statement reads and deletes by the same snapshot: RETURNING would fetch each of them once more. Others'
	// changes have to be errors then. Apart says that a statement of this run could not.
	Ahead uint32
	Apart bool
	// Ruled says that a rule of the table decides what the statement does, which Postgres refuses to one that keeps rows. The rows are counted as left
	// out by a statement before it.
	Ruled bool
	// Origins are the sets that the deleted parents are in.
	Origins []int64
}

// Room makes room for arrays and texts, once in a session. The C library gives back what is freed above a size that grows with the largest piece ever freed,
// and the kernel clears it anew for the next statement: without this, that takes a third of the time of keeping rows. Measured as page faults of a statement,
// a piece of 4 MB serves 8,000 rows, and with 16,000 rows each statement has 2,200 more than with 8 MB; 16 MB saves none on top. To count its characters
// would take longer than to make it.
const Room = `CASE WHEN pg_catalog.current_setting('sexton.room', true) IS NULL THEN pg_catalog.set_config('sexton.room', pg_catalog.octet_length(
	pg_catalog.repeat(pg_catalog.repeat('x', pg_catalog.current_setting('block_size')::pg_catalog.int4), 1000))::pg_catalog.text, false) END`

// Begin is the statement before: the trigger of a child that is a parent itself reads which set its rows are in.
func (k *Keep) Begin(names pgcatalog.Names) batch.Statement {
	return batch.Statement{
		SQL: names.Render(`SELECT pg_catalog.set_config(
	'sexton.undo', pg_catalog.concat(pg_catalog.nextval('"sexton".undo_ids'), '/', $1::pg_catalog.oid), true), ` + Room),
		Args: []any{k.Relation},
	}
}

// countingRows counts the rows that the next statement will find as left out.
func (e *Edge) countingRows(names pgcatalog.Names, table string, keys Keys, where string, args *Args) string {
	from := fmt.Sprintf("(SELECT FROM %s AS child WHERE %s) AS gone HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0", table, where)
	return "WITH " + keys.Keep.insert("kept", from, names, e, keys, nil, nil, nil, "0", args) + "\n" + fmt.Sprintf(total, "kept")
}

// keepingRemoved has a DELETE keep its rows. What stands beside their columns has the name of a system column, which no column of a table may have: xmin
// is true for rows that are kept, cmin the part that a row is kept in, cmax its key. The number of rows comes as a row, since the statement's affected rows
// are the inserted ones.
func (e *Edge) keepingRemoved(names pgcatalog.Names, leaf pgcatalog.Table, keys Keys, where string, args *Args) string {
	k := keys.Keep
	deletion := Change(Remove, "ONLY "+leaf.SQL(), nil, "") + " WHERE " + where
	if k.Ahead != 0 {
		return e.keepingAhead(names, leaf, keys, deletion, where, args)
	}
	returning, event := Qualified("child", k.Columns), ""
	if e.EmitsEvent {
		returning = append(returning, batch.RowKey("child", e.PrimaryKey, e.EventColumns)+" AS cmax")
		event = ",\nkeyed AS (SELECT gone.cmax AS key FROM gone),\nevent AS (" + e.event(names, "keyed") + ")"
	}
	if k.Size == "" {
		returning = append(returning, "true AS xmin")
		insert := k.insert("kept", "gone HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0", names, e, keys, nil, nil, k.Terms, "0", args)
		return fmt.Sprintf("WITH gone AS (%s RETURNING %s)%s,\n%s\n%s", deletion, strings.Join(returning, ", "), event, insert, fmt.Sprintf(total, "kept"))
	}
	most := fmt.Sprintf("$%d::pg_catalog.int8", args.Add(k.MaxRow))
	returning = append(returning, k.size("child")+" OPERATOR(pg_catalog.<=) "+most+" AS xmin")
	bytes := "least(" + k.size("gone") + ", " + most + ")"
	few := "gone WHERE (SELECT taken.bytes FROM taken) OPERATOR(pg_catalog.<=) %d HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0"
	small := k.insert("small", fmt.Sprintf(few, mostBytes), names, e, keys, nil, nil, k.Terms, "0", args)
	large := k.insert("large", fmt.Sprintf(`(
		SELECT gone.*, pg_catalog.sum(%s) OVER (ROWS UNBOUNDED PRECEDING) OPERATOR(pg_catalog./) %[2]d AS cmin
		FROM gone WHERE (SELECT taken.bytes FROM taken) OPERATOR(pg_catalog.>) %[2]d
	) AS gone GROUP BY pg_catalog.trunc(gone.cmin)`, bytes, mostBytes), names, e, keys, nil, nil, k.Terms, "0", args)
	return fmt.Sprintf("WITH gone AS (%s RETURNING %s)%s,\ntaken AS (SELECT coalesce(pg_catalog.sum(%s), 0) AS bytes FROM gone),\n%s,\n%s\n%s",
		deletion, strings.Join(returning, ", "), event, bytes, small, large,
		fmt.Sprintf(total, "(SELECT small.total FROM small UNION ALL SELECT large.total FROM large) AS kept"))
}

// size is that of a row.
func (k *Keep) size(alias string) string {
	return strings.NewReplacer("%1$s", alias, "%%", "%").Replace(k.Size)
}

// Separator stands before each value of a column that is kept as one text without quotes: an array of texts takes three times as long.
const Separator = `E'\x01'`

// Null stands for NULL in such a text.
const Null = `E'\x02'`

// keepingAhead has a DELETE keep its rows without a second look at them. The function undo_set refuses that where the table may let rows stay, some are
// so large that their arrays may not fit into memory, or a text has a separator in it.
func (e *Edge) keepingAhead(names pgcatalog.Names, leaf pgcatalog.Table, keys Keys, deletion, where string, args *Args) string {
	k, small := keys.Keep, "true"
	if k.Size != "" {
		small = fmt.Sprintf("%s OPERATOR(pg_catalog.<=) %d", k.size("child"), min(k.MaxRow, mostAhead))
	}
	terms, unfit := slices.Clone(k.Terms), "0"
	for i, column := range k.Columns {
		if slices.Contains(k.Key, column) || !slices.Contains([]string{"pg_catalog.text", "pg_catalog.varchar"}, k.Types[i]) {
			continue // Triggers read keys.
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
	// mostAhead is the size of a row up to which many go into one array unseen.
	mostAhead = 1000
	// mostBytes is from where on the rows of a statement are kept in parts: a value has a limit of its own.
	mostBytes = 64 << 20
	total     = "SELECT coalesce(pg_catalog.sum(kept.total), 0)::pg_catalog.int8 FROM %s"
)

// keepingChanged has an UPDATE keep what its rows were: their keys and the columns that it sets. A row that another session changes meanwhile is left to
// a later statement.
func (e *Edge) keepingChanged(names pgcatalog.Names, keys Keys, set []string, update, table, here, where string, args *Args) string {
	k := keys.Keep
	fields := slices.Clone(k.Key)
	for _, column := range slices.Concat(set, e.Columns) {
		if !slices.Contains(fields, column) {
			fields = append(fields, column)
		}
	}
	terms := make([]string, 0, len(fields))
	for _, field := range fields {
		if at := slices.Index(k.Columns, field); at >= 0 && len(k.Key) > 0 {
			terms = append(terms, k.Terms[at])
		}
	}
	if len(terms) < len(fields) {
		terms = nil // Without a key, or a column that is kept, nothing could be given back.
	}
	return fmt.Sprintf(`WITH was AS MATERIALIZED (SELECT child.ctid AS ctid, %s FROM %s AS child WHERE %s%s%s),
gone AS (%s FROM was WHERE %schild.ctid OPERATOR(pg_catalog.=) was.ctid RETURNING %s, true AS xmin),
%s
%s`, strings.Join(Qualified("child", fields), ", "), table, here, where, e.Lock(), update, here, strings.Join(Qualified("was", fields), ", "),
		k.insert("kept", "gone HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0", names, e, keys, fields, set, terms, "0", args),
		fmt.Sprintf(total, "kept"))
}

// insert is the CTE that keeps the rows of gone. Of changed rows, columns are the ones that are kept, and set the ones that were changed.
// More than 0 unfit values have the function undo_set refuse them.
func (k *Keep) insert(cte, from string, names pgcatalog.Names, e *Edge, keys Keys, columns, set, terms []string, unfit string, args *Args) string {
	rows, left, kept := "pg_catalog.count(*) FILTER (WHERE gone.xmin)", "pg_catalog.count(*) FILTER (WHERE NOT gone.xmin)",
		"ARRAY["+strings.Join(terms, ", ")+"]"
	if k.Full || terms == nil {
		rows, left, kept = "0", "pg_catalog.count(*)", "NULL"
	}
	array := func(values []string) string {
		return "ARRAY[" + strings.Join(each.Of(values, pgcatalog.Literal), ", ") + "]::pg_catalog.text[]"
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
		names.Render(`"sexton".undo`), names.Render(`"sexton".undo_set`), args.Add(k.Relation), args.Add(k.ID), args.Add(k.Exclude), left, rows,
		k.Waits && !k.Full, args.Add(k.Origins), array(e.Columns), array(keys.Of.KeyColumns), fields, changed, written, kept, args.Add(keys.Of.OID), cte, from,
		k.Ahead, unfit)
}
