package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// example is a block of docs/definitions.md with what stands right before and behind it.
type example struct {
	// file is sexton.yaml or loose_foreign_keys.yml, as its first line says.
	file, text string
	// tables are those of the database that is asked; without, the files alone are. config is a sexton.yaml beside it.
	tables, config string
	// complaints is what the program says of it, and nothing of one that is sound.
	complaints string
}

func definitionExamples(t *testing.T) []example {
	t.Helper()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "docs", "definitions.md")))(t)
	var examples []example
	tables, sound, end := "", 0, 0
	for _, match := range regexp.MustCompile("(?ms)^```(yaml|sql|text)\n(.*?)^```$").FindAllStringSubmatchIndex(string(text), -1) {
		joined := strings.TrimSpace(string(text[end:match[0]])) == ""
		end = match[1]
		switch language, block := string(text[match[2]:match[3]]), string(text[match[4]:match[5]]); language {
		case "sql":
			tables = block
		case "yaml":
			first, _, _ := strings.Cut(block, "\n")
			file, named := strings.CutPrefix(first, "# ")
			require.True(t, named, "the block says in its first line which file it is:\n%s", block)
			e := example{file: file, text: block, tables: tables}
			if last := len(examples) - 1; joined && last >= 0 && examples[last].file == "sexton.yaml" {
				e.config = examples[last].text
			}
			examples, tables = append(examples, e), ""
			sound++
		case "text":
			examples[len(examples)-1].complaints = block
			sound--
		}
	}
	require.Greater(t, sound, 3, "examples that are sound")
	require.Greater(t, len(examples)-sound, 4, "examples that are not")
	return examples
}

// testDefinitions feeds every example of docs/definitions.md to the program.
func testDefinitions(t *testing.T, p program) {
	t.Helper()
	for _, e := range definitionExamples(t) {
		dir := t.TempDir()
		const smallest = "issues:\n  - {table: projects, column: project_id, on_delete: async_delete}\n"
		files := map[string]string{"loose_foreign_keys.yml": smallest, "sexton.yaml": e.config}
		files[e.file] = e.text
		for file, text := range files {
			if text != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
		}
		url := "postgres://localhost/app"
		if e.tables != "" {
			db := pgtest.New(t)
			db.Exec(e.tables)
			url = db.URL
		}
		sexton := func(words ...string) (output string, code int) {
			cmd := exec.CommandContext(t.Context(), p.path, words...)
			cmd.Dir, cmd.Env = dir, []string{"DATABASE_URL=" + url, "HOME=" + dir}
			var said strings.Builder
			cmd.Stderr = &said
			_ = cmd.Run()
			return said.String(), cmd.ProcessState.ExitCode()
		}
		output, code := sexton("config", "check")
		if e.tables != "" {
			require.Zero(t, code, "config check asks no database: %s", output)
			output, code = sexton("migrate", "up")
			require.Zero(t, code, output)
			output, code = sexton("triggers", "install")
		}
		want := 0
		if e.complaints != "" && !strings.HasPrefix(e.complaints, "sexton: warning: ") {
			want = 2
		}
		require.Equal(t, e.complaints, output, "what the program says of\n%s", e.text)
		require.Equal(t, want, code, "exit code for\n%s", e.text)
	}
}
