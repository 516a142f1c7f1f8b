#include "worker/message.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace tilewright::worker {
namespace {

const Message kMessage{"check", {"gemm.kernel", "", std::string("a\0b\n", 4)}};

std::optional<Message> Read(std::string_view bytes) {
  MessageReader reader;
  reader.Add(bytes);
  auto next = reader.Next();
  return next ? *next : std::nullopt;
}

TEST(WorkerMessage, Is_read_as_it_was_written_in_whatever_pieces_it_comes) {
  const std::string bytes = Encode(kMessage).value() + Encode({"hello", {}}).value();
  MessageReader reader;
  std::vector<Message> got;
  for (const char byte : bytes) {
    reader.Add({&byte, 1});
    auto next = reader.Next();
    ASSERT_TRUE(next) << next.error().message;
    if (*next) got.push_back(**next);
  }
  EXPECT_EQ(got, (std::vector<Message>{kMessage, {"hello", {}}}));
  EXPECT_FALSE(reader.incomplete());
}

TEST(WorkerMessage, Bytes_that_are_none_are_an_error_and_a_part_of_one_waits) {
  const std::string bytes = Encode(kMessage).value();
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_EQ(Read(std::string_view(bytes).substr(0, length)), std::nullopt);
  // Any change of a byte gives another message, an error, or a wait; never this message.
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int flip : {1, 0x80}) {
      std::string other = bytes;
      other[at] = static_cast<char>(other[at] ^ flip);
      EXPECT_NE(Read(other), kMessage) << at;
    }
  }
  Random random(3);
  int errors = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string noise = i % 2 == 0 ? "" : bytes.substr(0, 8);
    for (int j = 0; j < 60; ++j) noise += static_cast<char>(random.Next() >> 56);
    MessageReader reader;
    reader.Add(noise);
    errors += reader.Next() ? 0 : 1;
  }
  EXPECT_GT(errors, 1900);
}

TEST(WorkerMessage, Longer_than_the_limit_is_neither_sent_nor_waited_for) {
  EXPECT_FALSE(Encode({"check", {std::string(kMostBytes, 'x')}}));
  MessageReader reader;
  reader.Add(std::string("TWWM\x01\x00\x10\x00", 8));
  const auto next = reader.Next();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, ErrorCode::kCorrupt);
}

TEST(WorkerMessage, An_outcome_keeps_every_field) {
  for (int verdict = 0; verdict <= static_cast<int>(Verdict::kHang); ++verdict) {
    Reply reply;
    reply.outcome.verdict = static_cast<Verdict>(verdict);
    reply.outcome.evidence = "d[0, 1] = nan";
    reply.outcome.us = 1.0 / 3, reply.outcome.cost_us = 1e-9;
    reply.outcome.disturbed = verdict % 2 == 0;
    reply.outcome.reference_us = 0.1 + verdict;
    reply.outcome.skipped = reply.device_lost = verdict % 3 == 0;
    const auto read = ReplyOf(*Read(Encode(MessageOf(reply)).value()));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->outcome.verdict, reply.outcome.verdict);
    EXPECT_EQ(read->outcome.evidence, reply.outcome.evidence);
    EXPECT_EQ(read->outcome.us, reply.outcome.us);
    EXPECT_EQ(read->outcome.cost_us, reply.outcome.cost_us);
    EXPECT_EQ(read->outcome.disturbed, reply.outcome.disturbed);
    EXPECT_EQ(read->outcome.reference_us, reply.outcome.reference_us);
    EXPECT_EQ(read->outcome.skipped, reply.outcome.skipped);
    EXPECT_EQ(read->device_lost, reply.device_lost);
  }
}

TEST(WorkerMessage, What_is_no_outcome_is_refused) {
  Message message = MessageOf(Reply{});
  EXPECT_TRUE(ReplyOf(message));
  for (std::size_t word = 0; word < message.words.size(); ++word) {
    if (word == 1) continue;  // evidence is any text
    Message other = message;
    other.words[word] = "inf";
    EXPECT_FALSE(ReplyOf(other)) << word;
  }
  message.words.pop_back();
  EXPECT_FALSE(ReplyOf(message));
}

TEST(WorkerMessage, An_error_keeps_code_and_words) {
  const Error error{ErrorCode::kOutOfMemory, "no memory for D"};
  EXPECT_EQ(ErrorOf(*Read(Encode(MessageOf(error)).value())), error);
  EXPECT_EQ(ErrorOf({"outcome", {"", ""}}), std::nullopt);
}

}  // namespace
}  // namespace tilewright::worker
