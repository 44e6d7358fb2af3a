/** How many entries are read, and removed in one transaction, at a time. */
export const trimBatch = 100
