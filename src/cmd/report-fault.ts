/** Makes the process end with 1, after one line per line of the error's message on standard error. */
export function reportFault(program: string, error: unknown): void {
  const message = error instanceof Error ? error.message : String(error)
  process.stderr.write(`${program}: ${message.replaceAll('\n', `\n${program}: `)}\n`)
  process.exitCode = 1
}
