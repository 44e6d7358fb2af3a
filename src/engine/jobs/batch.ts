/** Number of expired entries to read, and to remove in one transaction. */
export const expireBatch = 100
