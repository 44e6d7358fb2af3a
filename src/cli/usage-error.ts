/** The command was called wrongly: nothing was asked of a server. The message is one line for a person. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}
