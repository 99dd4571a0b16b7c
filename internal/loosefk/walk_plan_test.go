package loosefk

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/drain"
)

// window are so many pointers, perBlock in each block from the first one on.
func window(size, perBlock int, first uint32) []pgtype.TID {
	pointers := make([]pgtype.TID, size)
	for i := range pointers {
		pointers[i] = pgtype.TID{BlockNumber: first + uint32(i/perBlock), OffsetNumber: uint16(i%perBlock + 1), Valid: true}
	}
	return pointers
}

func TestWalkBeginsWhereManyChildrenStandTogether(t *testing.T) {
	t.Parallel()

	const limit = 1000
	for name, test := range map[string]struct {
		window []pgtype.TID
		limit  int
		want   bool
	}{
		"dense":                            {window(firstWindow, denseBlock, 7), limit, true},
		"sparse":                           {window(largestBatch, denseBlock-1, 7), limit, false},
		"few":                              {window(firstWindow-1, 60, 7), limit, false},
		"none":                             {nil, limit, false},
		"statements smaller than a block":  {window(largestBatch, 60, 7), 59, false},
		"statements as large as one block": {window(largestBatch, 50, 7), 50, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w walk
			require.Equal(t, firstWindow, w.looksFor(true))
			require.Equal(t, largestBatch, w.looksFor(false))
			require.Equal(t, test.want, w.begin(test.window, test.limit))
			require.Equal(t, test.want, w.underWay())
			if test.want {
				require.EqualValues(t, 7, w.next)
				require.Equal(t, 1, w.looksFor(false))
			}
		})
	}
}

func TestWalkGoesOnUntilTheNextLook(t *testing.T) {
	t.Parallel()

	var w walk
	require.True(t, w.begin(window(largestBatch, 50, 0), 1000))
	require.EqualValues(t, 20, w.blocks(1000))
	w.advance(20, 800)
	require.EqualValues(t, 20, w.next)
	require.EqualValues(t, 25, w.blocks(1000), "the last stretch had fewer")
	for w.underWay() {
		w.advance(100, 5000)
	}
	require.EqualValues(t, 20+10*100, w.next)

	require.True(t, w.begin(window(1, 1, 3000), 1000), "it goes on where the look has found one")
	require.EqualValues(t, 3000, w.next)
	w.advance(100, 100)
	require.False(t, w.underWay(), "hardly any there")
	require.Equal(t, largestBatch, w.looksFor(false), "the next look decides anew")
	require.False(t, w.begin(window(100, 1, 0), 1000))
	require.True(t, w.begin(window(largestBatch, 20, 0), 1000))
	w.advance(10, 200)
	require.Zero(t, w.blocks(19), "fewer rows than one block has")
	w.stop()
	require.False(t, w.underWay())
	require.False(t, w.begin(window(largestBatch, 20, 0), 1000), "that was for good")
}

// With an old snapshot each look walks over all that was deleted before.
func TestWalkLooksLessOftenWhereLooksAreSlow(t *testing.T) {
	t.Parallel()

	var w walk
	w.looked(time.Hour, target)
	require.True(t, w.begin(window(largestBatch, 50, 0), 1000))
	require.EqualValues(t, largestBatch, w.left, "the look for pointers says nothing")
	for _, want := range []int64{2, 4, 8, 8} {
		w.looked(target+1, target)
		require.True(t, w.begin(window(1, 1, 0), 1000))
		require.Equal(t, want*largestBatch, w.left)
	}
	w.looked(target, target)
	require.EqualValues(t, 8*largestBatch, w.every)
	for _, want := range []int64{4, 2, 1, 1} {
		w.looked(target/2-1, target)
		require.Equal(t, want*largestBatch, w.every)
	}
}

// By the index a stretch would look at all children of its parent.
func TestStretchReadsItsBlocksAlone(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	db.Exec(`
		CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint) WITH (autovacuum_enabled = off);
		CREATE INDEX ON children (parent_id);
		INSERT INTO children SELECT n, n % 10 FROM generate_series(1, 20000) AS n;
		ANALYZE children`)
	parent := backlogParent()
	reference := parent.References[0]
	sql, args := reference.StretchStatement(dbtest.Names(), reference.Leaves[0], drain.Keys{Of: &parent.Key, Values: []int64{1}}, 3, 2)
	var scans []ranNode
	explain(t, db, sql, args).walk(func(n ranNode) {
		if n.Node != "ModifyTable" {
			scans = append(scans, n)
		}
	})
	require.Len(t, scans, 1)
	require.Equal(t, "Tid Range Scan", scans[0].Node)
	require.Greater(t, scans[0].Rows, 20.0)
	require.Less(t, scans[0].Rows+scans[0].Filtered, 2*300.0)
}
