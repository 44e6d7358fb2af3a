/** How many entries are read, and removed in one transaction, at a time. */
export const expireBatch = 100
