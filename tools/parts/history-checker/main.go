// Command history-checker decides whether a history of API calls can be explained by some order of its operations, each between its call and its
// return. It reads JSON lines on its standard input and prints one JSON verdict. It exits with 0 where it could read the history, whatever the verdict.
//
// An order is searched for in each part of the history for itself: for each record, for the members of each group, for each unique name, and for the rights of each
// identity that has no others than by its bindings in one group. Orders of one
// part are not held against those of another.
//
// Across parts nothing is searched for; what is sure of each record is held together, in polynomial time: that role bindings which no answer explains can
// each have a creation without an answer of their own (makers.go), that all that a list shows was there at one moment and that lists agree on what came first (lists.go), and
// that something can have been there for which a removal was refused (refusals.go).
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	patience := flag.Duration("patience", 20*time.Second, "how long one part of the history may take")
	flag.Parse()
	history, err := readHistory(bufio.NewReaderSize(os.Stdin, 1<<20))
	if err != nil {
		fmt.Fprintln(os.Stderr, "history-checker:", err)
		os.Exit(2)
	}
	w := takeApart(history)
	partitions := w.partitions()
	failures, unknown := checkAll(partitions, *patience)
	failures = append(w.failures, failures...)
	if failures == nil {
		failures = []failure{}
	}
	result := verdict{len(failures) == 0 && len(unknown) == 0, len(history), len(partitions), failures, unknown}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fmt.Fprintln(os.Stderr, "history-checker:", err)
		os.Exit(2)
	}
}
