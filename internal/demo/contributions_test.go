package demo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/exampleapp"
)

// writer is the user whose contributions the tests look at, ghost the one that they pass to.
const writer, ghost = 2, 3

// belongings are what row number n of a contribution belongs to: each has its own, number n + 1000. Other tests may take another number.
const belongings = `
INSERT INTO projects (id, group_id, name, path) SELECT n, 1, 'p', 'p' || n FROM generate_series(1001, 1040) AS n;
INSERT INTO issues (id, project_id, title) SELECT n, 1, 'i' FROM generate_series(1001, 1040) AS n;
INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) SELECT n, 1, 'm', 's', 't' FROM generate_series(1001, 1040) AS n;
INSERT INTO ci_pipelines (id, partition_id, project_id, ref, sha, status) SELECT n, 100, 1, 'r', 's', 'success' FROM generate_series(1001, 1040) AS n;
INSERT INTO users (id, username, email, name) SELECT n, 'u' || n, 'u' || n, 'n' FROM generate_series(1001, 1040) AS n;
`

const people = `
INSERT INTO groups (id, name, path) VALUES (1, 'g', 'g');
INSERT INTO users (id, username, email, name, user_type, admin) VALUES
	(1, 'admin', 'a', 'a', 0, true), (2, 'writer', 'w', 'w', 0, false), (3, 'ghost', 'g', 'g', 5, false);
INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'p', 'p');
`

// written makes rows n of a table, for odd n of a merge request and for even ones of an issue.
func written(table string) string {
	const (
		issue = "CASE WHEN n % 2 = 0 THEN n + 1000 END"
		mr    = "CASE WHEN n % 2 = 1 THEN n + 1000 END"
		kind  = "CASE WHEN n % 2 = 0 THEN 'Issue' ELSE 'MergeRequest' END"
	)
	columns, values := "", ""
	switch table {
	case "issues":
		columns, values = "id, project_id, author_id, title", "n, n + 1000, 2, 't'"
	case "merge_requests":
		columns, values = "id, target_project_id, author_id, title, source_branch, target_branch", "n, n + 1000, 2, 't', 's', 't'"
	case "notes":
		columns, values = "id, project_id, noteable_type, noteable_id, author_id, note", "n, n + 1000, "+kind+", n + 1000, 2, 'note'"
	case "todos":
		columns, values = "id, user_id, author_id, project_id, target_type, target_id, action", "n, n + 1000, 2, n + 1000, "+kind+", n + 1000, 1"
	case "resource_label_events":
		columns, values = "id, issue_id, merge_request_id, user_id, action", "n, "+issue+", "+mr+", 2, 1"
	case "reviews":
		columns, values = "id, author_id, merge_request_id, project_id", "n, 2, n + 1000, n + 1000"
	case "releases":
		columns, values = "id, project_id, author_id, tag, released_at", "n, n + 1000, 2, 'v', now()"
	case "timelogs":
		columns, values = "id, project_id, issue_id, merge_request_id, user_id, time_spent", "n, n + 1000, "+issue+", "+mr+", 2, 1"
	case "ci_pipelines":
		columns, values = "id, partition_id, project_id, user_id, merge_request_id, ref, sha, status", "n, 100, n + 1000, 2, n + 1000, 'r', 's', 'x'"
	case "p_ci_builds":
		columns, values = "id, partition_id, commit_id, project_id, user_id, name, stage, status", "n, 100 + n % 2, n + 1000, n + 1000, 2, 'b', 't', 'x'"
	}
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM generate_series(1, 40) AS n", table, columns, values)
}

func TestContributionsAreCountedOneByOne(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(people)
	for i, c := range contributions() {
		t.Run(c.table, func(t *testing.T) {
			// What others of the tables belong to goes with them.
			base := int64(1000 * (i + 1))
			own := strings.NewReplacer("1001, 1040", fmt.Sprintf("%d, %d", base+1, base+40), "n + 1000", fmt.Sprintf("n + %d", base))
			db.Exec(own.Replace(belongings+written(c.table)) + ";" + query("contributions"))
			db.Exec(recordContributions(dbtest.Names()), writer)
			on := testStage(db)
			want := contributionCount{before: 40}
			count := func(what string) {
				got, err := countContributions(t.Context(), on)
				require.NoError(t, err)
				require.Equal(t, want, got, what)
			}
			count("while nothing has happened")
			set := func(value string, ids ...int64) {
				db.Exec(fmt.Sprintf("UPDATE %s SET %s = %s WHERE id = ANY ($1)", c.table, c.column, value), ids)
			}
			set(fmt.Sprint(ghost), 1, 2, 3, 4)
			want.ghost = 4
			count("four with the ghost")
			set("1", 5)
			count("one with somebody else is lost")

			remove := func(table string, ids ...int64) {
				db.Exec(fmt.Sprintf("DELETE FROM %s WHERE id = ANY ($1)", table), ids)
			}
			remove(c.table, 7, 8)
			count("two that are gone for no reason are lost")
			on.ledger.add(c.table, []int64{7})
			on.ledger.add("others", []int64{8})
			want.gone = 1
			count("one that the application has deleted itself")

			at := int64(10)
			for _, o := range c.owners {
				// One of either sort: it went with this owner if that was its own.
				remove(c.table, at, at+1)
				remove(o.table, at+base, at+base+1)
				switch {
				case o.kind == "" && o.column != "issue_id" && (o.column != "merge_request_id" || c.table == "reviews" || c.table == "ci_pipelines"):
					want.gone += 2
				default:
					want.gone++
				}
				count("those that have gone with their " + o.table)
				at += 2
			}
			db.Exec("DELETE FROM " + c.table + " WHERE id <= 40 AND id > 0")
		})
	}
}

func TestContributionsOfOthersAreNotTakenDown(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(people + belongings + written("notes") + ";" + query("contributions"))
	db.Exec("UPDATE notes SET author_id = 1 WHERE id > 30; UPDATE notes SET author_id = NULL WHERE id > 35")
	db.Exec(recordContributions(dbtest.Names()), writer)
	require.Equal(t, [][]string{{"notes", "30", "30"}}, db.Rows("SELECT place, count(*), max(row_id) FROM demo.contributions GROUP BY place"))
	db.Exec(query("contributions"))
	require.Empty(t, db.Rows("SELECT FROM demo.contributions"), "a demo that goes on begins anew")
}

// What a row goes with stands in the schema and in the definitions: whatever is missing here would be counted as lost.
func TestContributionsKnowAllTheirOwners(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	for _, c := range contributions() {
		var want, got []string
		for _, row := range db.Rows(`
			SELECT attribute.attname, key.confrelid::regclass
			FROM pg_constraint AS key
			JOIN pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = key.conkey[1]
			WHERE key.contype = 'f' AND key.confdeltype = 'c' AND key.conrelid = $1::text::regclass
				AND attribute.attname <> $2`, c.table, c.column) {
			want = append(want, row[0]+" "+row[1])
		}
		for _, d := range parsed(t, exampleapp.Definitions()) {
			// Its author is what the column is about.
			if d.Child.String() != c.table || d.OnDelete != definitions.Delete || d.Columns[0] == c.column {
				continue
			}
			place := d.Columns[0] + " " + d.Parent.String()
			for _, condition := range d.Conditions {
				place += fmt.Sprintf(" where %s is %s", condition.Column, condition.Value)
			}
			want = append(want, place)
		}
		for _, o := range c.owners {
			place := o.column + " " + o.table
			if o.kind != "" {
				place += fmt.Sprintf(" where %s is %s", o.kind, o.is)
			}
			got = append(got, place)
		}
		require.ElementsMatch(t, want, got, c.table)
	}
}
