#include "cache/page_pool.hpp"

namespace pumice {

PagePool::PagePool(uint32_t n_pages) : limit_(n_pages) {
  if (unlimited()) return;
  pages_.resize(n_pages);
  for (PageId page = n_pages; page-- > 0;) link(page);
}

PagePool PagePool::up_to(uint32_t limit) {
  PagePool pool;
  pool.limit_ = limit;
  return pool;
}

PageId PagePool::add_page() {
  PUMICE_CHECK(pages_.size() < kNoPage, "more pages than numbers");
  pages_.emplace_back();
  const PageId page = n_pages() - 1;
  link(page);
  return page;
}

void PagePool::link(PageId page) {
  Page& entry = pages_[page];
  entry.previous = entry.cached ? tail_ : kNoPage;
  entry.next = entry.cached ? kNoPage : head_;
  (entry.previous == kNoPage ? head_ : pages_[entry.previous].next) = page;
  (entry.next == kNoPage ? tail_ : pages_[entry.next].previous) = page;
  ++n_free_;
}

void PagePool::unlink(PageId page) {
  const Page& entry = pages_[page];
  (entry.previous == kNoPage ? head_ : pages_[entry.previous].next) = entry.next;
  (entry.next == kNoPage ? tail_ : pages_[entry.next].previous) = entry.previous;
  --n_free_;
}

PageId PagePool::take() {
  if (n_pages() < limit_ && (head_ == kNoPage || pages_[head_].cached)) add_page();
  PUMICE_CHECK(head_ != kNoPage, "no page is free");
  const PageId page = head_;
  unlink(page);
  pages_[page].references = 1;
  return page;
}

void PagePool::take(PageId page) {
  PUMICE_CHECK(page < n_pages() && pages_[page].references == 0 && !pages_[page].cached,
               "a page is taken that is in use");
  unlink(page);
  pages_[page].references = 1;
}

void PagePool::share(PageId page) {
  PUMICE_CHECK(page < n_pages(), "sharing a page that is not there");
  Page& entry = pages_[page];
  PUMICE_CHECK(entry.references > 0 || entry.cached, "sharing a free page");
  if (entry.references == 0) unlink(page);
  ++entry.references;
}

void PagePool::release(std::span<const PageId> pages) {
  for (auto it = pages.rbegin(); it != pages.rend(); ++it) {
    PUMICE_CHECK(*it < n_pages() && pages_[*it].references > 0, "releasing a free page");
    if (--pages_[*it].references == 0) link(*it);
  }
}

void PagePool::set_cached(PageId page, bool cached) {
  Page& entry = pages_[page];
  if (entry.cached == cached) return;
  const bool is_free = entry.references == 0;
  if (is_free) unlink(page);
  entry.cached = cached;
  if (is_free) link(page);
}

void PagePool::replace(PageId from, PageId to) {
  PUMICE_CHECK(from != to && pages_[to].references == 1 && !pages_[to].cached,
               "a page is replaced by one in use");
  Page& entry = pages_[to];
  entry = pages_[from];
  if (entry.references == 0) {
    (entry.previous == kNoPage ? head_ : pages_[entry.previous].next) = to;
    (entry.next == kNoPage ? tail_ : pages_[entry.next].previous) = to;
  }
  pages_[from] = {};
  link(from);
}

void PagePool::resize(uint32_t n_wanted) {
  PUMICE_CHECK(!unlimited() && n_wanted < kUnlimitedPages, "an unlimited pool has no size");
  limit_ = n_wanted;
  for (PageId page = n_pages(); page-- > n_wanted;) {
    PUMICE_CHECK(pages_[page].references == 0 && !pages_[page].cached,
                 "a page goes that is in use");
    unlink(page);
    pages_.pop_back();
  }
  const PageId first_new = n_pages();
  pages_.resize(n_wanted);
  for (PageId page = n_wanted; page-- > first_new;) link(page);
}

Status PagePool::check_integrity() const {
  std::vector<bool> is_free(n_pages(), false);
  PageId previous = kNoPage;
  uint32_t n_found = 0;
  for (PageId page = head_; page != kNoPage; page = pages_[page].next) {
    if (page >= n_pages() || is_free[page]) {
      return make_error(ErrorCode::kInternal, "page {} is twice in the free list", page);
    }
    if (pages_[page].previous != previous) {
      return make_error(ErrorCode::kInternal, "page {} has a wrong neighbour in the free list",
                        page);
    }
    if (previous != kNoPage && pages_[previous].cached && !pages_[page].cached) {
      return make_error(ErrorCode::kInternal, "page {} waits behind cached ones without a content",
                        page);
    }
    is_free[page] = true;
    previous = page;
    ++n_found;
  }
  if (previous != tail_ || n_found != n_free_) {
    return make_error(ErrorCode::kInternal, "the free list holds {} pages and says {}", n_found,
                      n_free_);
  }
  for (PageId page = 0; page < n_pages(); ++page) {
    if (is_free[page] != (pages_[page].references == 0)) {
      return make_error(ErrorCode::kInternal, "page {} is {} with {} references", page,
                        is_free[page] ? "free" : "not free", pages_[page].references);
    }
  }
  return {};
}

}  // namespace pumice
