/** Where a repo's readme is kept: beside the records, never in memory. */
export function readmeKey(repo: string): string {
  return `x/readme/${repo}`
}
