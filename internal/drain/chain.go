package drain

import (
	"fmt"
	"strings"

	"sexton/internal/pgcatalog"
)

// Where rows refer to others of their own table, one level at a time would be one row at a time: a chain of thousands of
// them would be walked down for longer than a run lasts. So they are found many levels at once, and go many levels at once.

// chainStatement reads at most $4 rows that hang, on however many levels, by a chain below the window's, except the ones at the
// tuples $3 and what is below them alone; the upper ones come first. What refers to what in a ring is read once.
func chainStatement(leaf pgcatalog.Table, f *Ref) string {
	return fmt.Sprintf(`WITH RECURSIVE %s,
down AS (
	SELECT want.at, want.version FROM want
	UNION
	SELECT found.At, found.Version
	FROM down
	CROSS JOIN LATERAL (
		SELECT child.ctid AS at, child.xmin AS version
		FROM ONLY %[2]s AS parent
		JOIN ONLY %[2]s AS child ON %[3]s
		WHERE parent.ctid OPERATOR(pg_catalog.=) down.at AND parent.xmin OPERATOR(pg_catalog.=) down.version
		AND child.ctid OPERATOR(pg_catalog.<>) ALL ($3::pg_catalog.tid[])
		OFFSET 0
	) AS found
)
SELECT down.at, down.version FROM down WHERE true%[4]s
LIMIT $4`, wantSQL, leaf.SQL(), f.matches("parent"), outside("down.at", "want"))
}

// outside is the condition that a tuple is none of a CTE's.
func outside(tuple, cte string) string {
	return fmt.Sprintf(" AND NOT %s OPERATOR(pg_catalog.=) ANY (SELECT beside.at FROM %s AS beside)", tuple, cte)
}

// beside is the condition that a chain's row (alias child) is none of the rows that go together; for other keys it is empty.
func (f *Ref) beside(cte string) string {
	if !f.chain {
		return ""
	}
	return outside("child.ctid", cte)
}

// heldSQL is a CTE of those of the rows in another one that have to stay: something refers to them that does not go along with
// them. So has what they refer to themselves: it would take them with it. Places may have got other rows since
// they were read; meant are the ones that have not.
func heldSQL(leaf pgcatalog.Table, refs []*Ref, from string) string {
	var live, above []string
	for _, f := range refs {
		if !f.chain {
			live = append(live, f.Exists("target"))
			continue
		}
		live = append(live, fmt.Sprintf("EXISTS (SELECT FROM %s AS child WHERE %s OFFSET 0)", f.From, f.matches("target")+f.beside("meant")))
		above = append(above, fmt.Sprintf(`SELECT target.ctid AS at
		FROM ONLY %[1]s AS child
		JOIN ONLY %[1]s AS target ON %[2]s
		WHERE child.ctid OPERATOR(pg_catalog.=) held.at`, leaf.SQL(), f.matches("target")))
	}
	return fmt.Sprintf(`meant AS MATERIALIZED (
	SELECT want.at FROM %[1]s AS want
	JOIN ONLY %[2]s AS target ON target.ctid OPERATOR(pg_catalog.=) want.at AND target.xmin OPERATOR(pg_catalog.=) want.version
),
held AS (
	SELECT meant.at FROM meant JOIN ONLY %[2]s AS target ON target.ctid OPERATOR(pg_catalog.=) meant.at
	WHERE %[3]s
	UNION
	SELECT above.at
	FROM held
	CROSS JOIN LATERAL (
		%[4]s
		OFFSET 0
	) AS above
	WHERE above.at OPERATOR(pg_catalog.=) ANY (SELECT meant.at FROM meant)
)`, from, leaf.SQL(), strings.Join(live, "\n\t\tOR "), strings.Join(above, "\n\t\tUNION ALL\n\t\t"))
}
