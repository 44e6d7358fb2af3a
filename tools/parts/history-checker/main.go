// Command history-checker decides whether a history of API calls is linearizable: whether its operations have a valid order in which each
// takes effect between its call and its return. It reads JSON lines from standard input, and prints one verdict as JSON. It exits with 0
// if it could read the history, whatever the verdict.
//
// It searches for an order separately in each part of the history. The parts are each record, the members of each group, each unique name,
// and the rights of each identity that has rights only through role bindings in one group. It does not compare the orders of different
// parts.
//
// Across parts it searches for no order. It combines only what is certain about each record, in polynomial time, and checks three things.
// Role bindings without a known creation can each come from a different unanswered creation (makers.go). The content of each list existed
// at one moment, and lists agree on the order of changes (lists.go). If a removal was refused, a record existed that prevents it
// (refusals.go).
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
