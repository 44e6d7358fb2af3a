/** Number of entries to read, and to remove in one transaction. */
export const expireBatch = 100
